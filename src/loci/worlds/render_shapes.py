"""The five shapes in their own frame, at unit size: where a ray enters, where the surface faces, how far a point is.

A batch of M points or directions is three tensors of M numbers (x, y, z): no small last axis, every operation runs over
contiguous memory. A ray is origin + t·direction; its direction need not have length 1. A miss has t = inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from loci.worlds.scene import SHAPES

Vector = tuple[Tensor, Tensor, Tensor]

CUBE, SPHERE, CYLINDER, CONE, SPL = range(len(SHAPES))

ROUND = (SPHERE, SPL)
"""Shapes whose shadow does not depend on how they are turned (the snitch's nearly)."""

CUBE_HALF = 1.0
CUBE_ROUNDING = 0.2
CYLINDER_HALF = 0.655
CYLINDER_RADIUS = 1.0
CYLINDER_ROUNDING = 0.06
CONE_SIDES = 32
RING = 0.87
TUBE = 0.28

BOUNDS = (1.59, 1.0, 1.18, math.sqrt(2.0), RING + TUBE)
"""For each shape, the radius around its origin that holds it."""


def dot(a: Vector, b: Vector) -> Tensor:
    """The inner product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def along(origin: Vector, direction: Vector, t: Tensor) -> Vector:
    """The point of a ray at t."""
    x, y, z = (o + t * d for o, d in zip(origin, direction, strict=True))
    return x, y, z


def unit(v: Vector) -> Vector:
    """The same direction with length 1."""
    scale = torch.rsqrt(dot(v, v).clamp(min=1e-20))
    return v[0] * scale, v[1] * scale, v[2] * scale


def _length(a: Tensor, b: Tensor) -> Tensor:
    return torch.sqrt(a * a + b * b)


def _cube_distance(p: Vector) -> Tensor:
    qx, qy, qz = (c.abs() - (CUBE_HALF - CUBE_ROUNDING) for c in p)
    outside = torch.sqrt(qx.clamp(min=0) ** 2 + qy.clamp(min=0) ** 2 + qz.clamp(min=0) ** 2)
    return outside + torch.maximum(torch.maximum(qx, qy), qz).clamp(max=0) - CUBE_ROUNDING


def _sphere_distance(p: Vector) -> Tensor:
    return torch.sqrt(dot(p, p)) - 1


def _cylinder_distance(p: Vector) -> Tensor:
    radial = _length(p[0], p[1]) - (CYLINDER_RADIUS - CYLINDER_ROUNDING)
    axial = p[2].abs() - (CYLINDER_HALF - CYLINDER_ROUNDING)
    outside = _length(radial.clamp(min=0), axial.clamp(min=0))
    return outside + torch.maximum(radial, axial).clamp(max=0) - CYLINDER_ROUNDING


def _cone_distance(p: Vector) -> Tensor:
    """At most the true distance, off only near the apex and the rim: two half-spaces of the profile."""
    side = (2 * _length(p[0], p[1]) + p[2] - 1) / math.sqrt(5.0)
    return torch.maximum(side, -1 - p[2])


def _spl_distance(p: Vector) -> Tensor:
    x, y, z = (c * c for c in p)
    rings = [_length(torch.sqrt(a + b) - RING, c.sqrt()) for a, b, c in ((x, y, z), (y, z, x), (z, x, y))]
    return torch.minimum(torch.minimum(rings[0], rings[1]), rings[2]) - TUBE


DISTANCES: tuple[Callable[[Vector], Tensor], ...] = (
    _cube_distance,
    _sphere_distance,
    _cylinder_distance,
    _cone_distance,
    _spl_distance,
)
"""For each shape, the signed distance of points from its surface, negative inside."""


def _ball(origin: Vector, direction: Vector, radius: float) -> tuple[Tensor, Tensor]:
    """Where rays enter and leave a ball; nan where they miss it."""
    a, b = dot(direction, direction), dot(origin, direction)
    root = torch.sqrt(b * b - a * (dot(origin, origin) - radius * radius))
    return (-b - root) / a, (-b + root) / a


def _march(kind: int, origin: Vector, direction: Vector, steps: int) -> Tensor:
    """Walk from the bounding ball to the surface, each time by the distance to it; grazed edges are passed quickly."""
    enter, leave = _ball(origin, direction, BOUNDS[kind])
    speed = torch.rsqrt(dot(direction, direction))
    t = enter.clamp(min=0)
    gap = t
    for _ in range(steps):
        gap = DISTANCES[kind](along(origin, direction, t))
        t = t + torch.where(gap < 0.02, 0.0, gap.clamp(min=0.03)) * speed
    return torch.where((gap < 0.02) & (t < leave), t, torch.inf)


def _descend(kind: int, origin: Vector, direction: Vector, steps: int) -> Tensor:
    """Find the surface of a convex body by secants.

    Along a ray the distance from a convex body is a convex function, so the secant through two points before the
    surface meets zero before it too: never too far, and soon there, also where the ray only grazes the body.
    """
    enter, leave = _ball(origin, direction, BOUNDS[kind])
    before = enter.clamp(min=0)
    gap_before = DISTANCES[kind](along(origin, direction, before))
    t = before + gap_before.clamp(min=1e-4) * torch.rsqrt(dot(direction, direction))
    gap = DISTANCES[kind](along(origin, direction, t))
    for _ in range(steps):
        slope = (gap - gap_before) / (t - before)
        # Where the distance no longer falls the ray misses; where it is all but zero it has arrived.
        ahead = torch.where(slope < -1e-6, t - gap / slope, torch.inf)
        before, gap_before, t = t, gap, torch.where(gap > 1e-4, ahead, t + 1e-4)
        gap = DISTANCES[kind](along(origin, direction, t))
    return torch.where((gap < 0.02) & (t < leave), t, torch.inf)


def _sphere_entry(origin: Vector, direction: Vector) -> Tensor:
    enter, _ = _ball(origin, direction, 1.0)
    return torch.where(enter > 0, enter, torch.inf)


def _cone_entry(origin: Vector, direction: Vector) -> Tensor:
    rise, fall = (1 - origin[2]) / 2, -direction[2] / 2
    a = direction[0] ** 2 + direction[1] ** 2 - fall * fall
    b = origin[0] * direction[0] + origin[1] * direction[1] - rise * fall
    c = origin[0] ** 2 + origin[1] ** 2 - rise * rise
    root = torch.sqrt(b * b - a * c)
    result = torch.full_like(a, torch.inf)
    for t in ((-b - root) / a, (-b + root) / a):
        z = origin[2] + t * direction[2]
        result = torch.where((t > 0) & (z.abs() < 1), torch.minimum(result, t), result)
    base = (-1 - origin[2]) / direction[2]
    p = along(origin, direction, base)
    return torch.where((base > 0) & (_length(p[0], p[1]) < 1), torch.minimum(result, base), result)


def entry(kind: int, origin: Vector, direction: Vector) -> Tensor:
    """The t > 0 at which rays first meet a shape, inf where they do not."""
    if kind == SPHERE:
        return _sphere_entry(origin, direction)
    if kind == CONE:
        return _cone_entry(origin, direction)
    if kind == SPL:
        return _march(kind, origin, direction, 32)
    return _descend(kind, origin, direction, 5)


def normal(kind: int, p: Vector) -> Vector:
    """The outward direction at points of the surface."""
    x, y, z = p
    if kind == CUBE:
        inner = CUBE_HALF - CUBE_ROUNDING
        return unit((x - x.clamp(-inner, inner), y - y.clamp(-inner, inner), z - z.clamp(-inner, inner)))
    if kind == CYLINDER:
        inner = CYLINDER_HALF - CYLINDER_ROUNDING
        radius = _length(x, y).clamp(min=1e-6)
        out = (radius - (CYLINDER_RADIUS - CYLINDER_ROUNDING)).clamp(min=0) / radius
        return unit((x * out, y * out, z - z.clamp(-inner, inner)))
    if kind == CONE:
        # CATER's cone has flat sides: the normal is that of the side's middle. Angles are float64, lest their last bit,
        # which depends on the processor and on the batch, decide between two sides.
        side = 2 * math.pi / CONE_SIDES
        turn = (torch.floor(torch.atan2(y.double(), x.double()) / side) + 0.5).to(x.dtype) * side
        base = z < -1 + 1e-3
        flat = torch.where(base, 0.0, 2 / math.sqrt(5.0))
        return torch.cos(turn) * flat, torch.sin(turn) * flat, torch.where(base, -1.0, 1 / math.sqrt(5.0))
    if kind == SPL:
        squares = (x * x, y * y, z * z)
        gaps, offsets = [], []
        for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            radius = torch.sqrt(squares[a] + squares[b]).clamp(min=1e-6)
            pull = 1 - RING / radius
            offset: list[Tensor] = [x, x, x]
            offset[a], offset[b], offset[c] = p[a] * pull, p[b] * pull, p[c]
            gaps.append(_length(radius - RING, p[c]))
            offsets.append(offset)
        nearest = torch.stack(gaps).argmin(0)
        chosen = [torch.stack([offset[axis] for offset in offsets]).gather(0, nearest[None])[0] for axis in range(3)]
        return unit((chosen[0], chosen[1], chosen[2]))
    return unit(p)
