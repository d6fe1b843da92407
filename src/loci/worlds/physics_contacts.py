"""Discs and squares in the plane: what they are, how they move, and where two of them touch.

B scenes, N bodies, P = N(N-1)/2 pairs of them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

TINY = 1e-12
"""What divides in place of 0."""


class Bodies(NamedTuple):
    """Where bodies are and how they move: positions and velocities [B,N,2], angles and spins [B,N]."""

    position: Tensor
    velocity: Tensor
    angle: Tensor
    spin: Tensor


class Matter(NamedTuple):
    """What bodies are.

    Attributes:
        square: [B,N] bool, a square rather than a disc.
        extent: [B,N] radius, or half the square's edge.
        mass: [B,N].
        inertia: [B,N], about the centre.
        friction: [B,N], with the floor.
        bounce: The share of the speed of approach with which bodies part.
        grip: Friction between bodies.
    """

    square: Tensor
    extent: Tensor
    mass: Tensor
    inertia: Tensor
    friction: Tensor
    bounce: float = 0.7
    grip: float = 0.2


class Contacts(NamedTuple):
    """Per pair: where they touch [B,P,2], the direction from the first to the second [B,P,2], the overlap [B,P]."""

    point: Tensor
    normal: Tensor
    depth: Tensor


@functools.cache
def pairs(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first and the second body of each pair, [P] each."""
    first, second = torch.triu_indices(count, count, 1, device=device)
    return first, second


def cross(a: Tensor, b: Tensor) -> Tensor:
    """The third component of the cross product of plane vectors."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def turn(v: Tensor, spin: Tensor) -> Tensor:
    """The velocity that a spin gives to a point at v."""
    return torch.stack([-v[..., 1] * spin, v[..., 0] * spin], -1)


def rotate(v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A plane vector turned by an angle of this cosine and sine."""
    return torch.stack([v[..., 0] * cos - v[..., 1] * sin, v[..., 0] * sin + v[..., 1] * cos], -1)


def length(v: Tensor) -> Tensor:
    """The length of a plane vector."""
    return (v[..., 0] * v[..., 0] + v[..., 1] * v[..., 1]).sqrt()


def contacts(bodies: Bodies, matter: Matter) -> Contacts:
    """Where every pair touches; pairs that do not touch have a depth of 0 or less."""
    one, two = pairs(bodies.angle.shape[1], bodies.angle.device)
    swap = matter.square[:, two] & ~matter.square[:, one]  # the square first, where there is one
    first, second = torch.where(swap, two, one), torch.where(swap, one, two)

    def of(values: Tensor, which: Tensor) -> Tensor:
        index = which if values.dim() == 2 else which[..., None].expand(-1, -1, 2)
        return values.gather(1, index)

    a, b = of(bodies.position, first), of(bodies.position, second)
    extent_a, extent_b = of(matter.extent, first), of(matter.extent, second)
    angle_a, angle_b = of(bodies.angle, first), of(bodies.angle, second)
    facing_a, facing_b = (angle_a.cos(), angle_a.sin()), (angle_b.cos(), angle_b.sin())
    square_a, square_b = of(matter.square, first), of(matter.square, second)
    round_ = _discs(a, b, extent_a, extent_b)
    mixed = _square_and_disc(a, b, extent_a, extent_b, facing_a)
    edged = _squares(a, b, extent_a, extent_b, facing_a, facing_b)

    def choose(disc: Tensor, mix: Tensor, edge: Tensor) -> Tensor:
        shape = square_a.shape + (1,) * (disc.dim() - 2)
        return torch.where(square_b.view(shape), edge, torch.where(square_a.view(shape), mix, disc))

    point, normal, depth = (choose(*three) for three in zip(round_, mixed, edged, strict=True))
    return Contacts(point, torch.where(swap[..., None], -normal, normal), depth)


def _discs(a: Tensor, b: Tensor, radius_a: Tensor, radius_b: Tensor) -> Contacts:
    # Two in the very same place have to part in some direction.
    apart = torch.where((a == b).all(-1, keepdim=True), a.new_tensor([TINY, 0.0]), b - a)
    distance = length(apart).clamp_min(TINY)
    normal = apart / distance[..., None]
    depth = radius_a + radius_b - distance
    return Contacts(a + normal * (radius_a - depth / 2)[..., None], normal, depth)


def _square_and_disc(a: Tensor, b: Tensor, half: Tensor, radius: Tensor, turn: tuple[Tensor, Tensor]) -> Contacts:
    cos, sin = turn
    local = rotate(b - a, cos, -sin)
    nearest = torch.maximum(torch.minimum(local, half[..., None]), -half[..., None])
    apart = local - nearest
    distance = length(apart)
    # A centre inside the square has no nearest point outside itself: there the nearer edge decides.
    inside = distance < TINY
    normal = torch.where(inside[..., None], _axis(local), apart / distance.clamp_min(TINY)[..., None])
    depth = torch.where(inside, radius + half - local.abs().amax(-1), radius - distance)
    return Contacts(a + rotate(nearest, cos, sin), rotate(normal, cos, sin), depth)


def _axis(local: Tensor) -> Tensor:
    """The unit vector along the larger coordinate."""
    x, y = local.unbind(-1)
    along = (x.abs() > y.abs()).to(local.dtype)
    return torch.stack([along * torch.where(x < 0, -1.0, 1.0), (1 - along) * torch.where(y < 0, -1.0, 1.0)], -1)


def _squares(
    a: Tensor, b: Tensor, half_a: Tensor, half_b: Tensor, turn_a: tuple[Tensor, Tensor], turn_b: tuple[Tensor, Tensor]
) -> Contacts:
    """Two squares overlap as much as they do along the direction of an edge in which they overlap least."""
    axes = torch.stack(
        [torch.stack([c, s], -1) for cos, sin in (turn_a, turn_b) for c, s in ((cos, sin), (-sin, cos))], 2
    )
    apart = ((b - a)[:, :, None] * axes).sum(-1)
    # Seen along an edge of one, the other is as wide as its own edges' shadows.
    cos, sin = rotate(torch.stack(turn_b, -1), turn_a[0], -turn_a[1]).abs().unbind(-1)
    reach_a = half_a[..., None] + ((cos + sin) * half_b)[..., None]
    reach_b = half_b[..., None] + ((cos + sin) * half_a)[..., None]
    overlap = torch.cat([reach_a.expand(-1, -1, 2), reach_b.expand(-1, -1, 2)], 2) - apart.abs()
    depth, least = overlap.min(2)
    chosen = axes.gather(2, least[..., None, None].expand(-1, -1, 1, 2)).squeeze(2)
    normal = torch.where(apart.gather(2, least[..., None]) < 0, -chosen, chosen)
    # They touch in the middle of the corners that are inside the other, or of both where two edges cross.
    of_b, depth_b = _corners_inside(a, b, half_a, half_b, turn_a, turn_b)
    of_a, depth_a = _corners_inside(b, a, half_b, half_a, turn_b, turn_a)
    corners = torch.cat([of_a, of_b, ((a + b) / 2)[:, :, None]], 2)
    weight = torch.cat([depth_a.clamp_min(0), depth_b.clamp_min(0), torch.full_like(depth[..., None], TINY)], 2)
    point = (weight[..., None] * corners).sum(2) / weight.sum(2)[..., None]
    return Contacts(point, normal, depth)


def _corners_inside(
    a: Tensor, b: Tensor, half_a: Tensor, half_b: Tensor, turn_a: tuple[Tensor, Tensor], turn_b: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The four corners of b, [B,P,4,2], and how deep each is inside a, [B,P,4]."""
    signs = a.new_tensor([[1, 1], [1, -1], [-1, -1], [-1, 1]])
    corner = b[:, :, None] + rotate(signs * half_b[..., None, None], turn_b[0][..., None], turn_b[1][..., None])
    local = rotate(corner - a[:, :, None], turn_a[0][..., None], -turn_a[1][..., None])
    return corner, half_a[..., None] - local.abs().amax(-1)
