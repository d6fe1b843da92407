"""The bodies of a stretch of frames as flat tables, and the questions asked of them: seen where, shadowed by whom.

An entry is one object in one frame: entry = frame · N + object, E = F · N of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds.render_camera import Eye, boxes, corners, pixels
from loci.worlds.render_light import Lamps, passing
from loci.worlds.render_shapes import BOUNDS, Vector, along, dot, entry, normal
from loci.worlds.scene import SHAPES, Scene


class Bodies(NamedTuple):
    """Tables over entries; `turn` is the rotation from the body's frame to the world."""

    objects: int
    kind: Tensor
    size: Tensor
    bound: Tensor
    metal: Tensor
    colour: Tensor
    position: Tensor
    turn: Tensor
    present: Tensor
    shown: Tensor

    def entries(self, kind: int, among: Tensor) -> Tensor:
        """The numbers of the entries of one shape, among those marked."""
        return torch.nonzero((self.kind == kind) & among)[:, 0]

    def inward(self, which: Tensor, v: Vector) -> Vector:
        """World directions, each in the frame and units of its body."""
        turn, size = self.turn[which], self.size[which]
        x, y, z = ((turn[..., 0, i] * v[0] + turn[..., 1, i] * v[1] + turn[..., 2, i] * v[2]) / size for i in range(3))
        return x, y, z

    def outward(self, which: Tensor, v: Vector) -> Vector:
        """Directions in the bodies' frames, in the world (not scaled)."""
        turn = self.turn[which]
        x, y, z = (turn[..., i, 0] * v[0] + turn[..., i, 1] * v[1] + turn[..., i, 2] * v[2] for i in range(3))
        return x, y, z

    def offset(self, which: Tensor, p: Vector) -> Vector:
        """From the bodies' origins to world points."""
        position = self.position[which]
        return p[0] - position[..., 0], p[1] - position[..., 1], p[2] - position[..., 2]


def tables(scene: Scene) -> Bodies:
    """The tables of one scene ([1,T,N] and so on)."""
    frames, objects = scene.present.shape[1:]

    def repeat(value: Tensor) -> Tensor:
        return value.expand(frames, *value.shape[1:]).flatten(0, 1)

    kind = repeat(scene.shape)
    size = repeat(scene.size).to(torch.float32)
    bound = torch.tensor(BOUNDS, device=kind.device)[kind.clamp(min=0)] * size
    return Bodies(
        objects,
        kind,
        size,
        bound,
        repeat(scene.material) == 1,
        repeat(scene.colour).to(torch.float32),
        scene.position[0].flatten(0, 1).to(torch.float32),
        scene.rotation[0].flatten(0, 1).to(torch.float32),
        scene.present[0].flatten(),
        scene.shown[0].flatten(),
    )


class Candidates(NamedTuple):
    """Pixels that a body of one shape may cover, and where the rays of their samples [S,M] meet it (inf: not)."""

    kind: int
    which: Tensor
    row: Tensor
    column: Tensor
    t: Tensor


def cast(bodies: Bodies, eye: Eye, offsets: Tensor) -> Iterator[Candidates]:
    """Meet every body with the rays of the pixels around it; samples lie at `offsets` [S,2] from a pixel's centre."""
    height, width = eye.size
    for kind in range(len(SHAPES)):
        here = bodies.entries(kind, bodies.present)
        area = boxes(eye, corners(bodies.position[here], bodies.bound[here]), eye.size)
        box, row, column = pixels(area)
        which = here[box]
        # A ray's direction is linear in (row, column), so it is turned into the body's frame once for each body.
        parts = [_spread(part, here) for part in (eye.centre, eye.ahead, eye.down, eye.right)]
        parts[0] = bodies.offset(here, parts[0])
        origin, ahead, down, right = ([c[box] for c in bodies.inward(here, part)] for part in parts)
        rows = (2 * (row + 0.5 + offsets[:, :1]) / height) - 1
        columns = (2 * (column + 0.5 + offsets[:, 1:]) / width) - 1
        x, y, z = (a + rows * d + columns * r for a, d, r in zip(ahead, down, right, strict=True))
        start = (origin[0].expand_as(x), origin[1].expand_as(x), origin[2].expand_as(x))
        t = entry(kind, start, (x, y, z))
        # What is below the floor is hidden by it: tilting bodies reach through.
        under = eye.centre[2] + t * eye.direction(rows, columns)[2] < 0
        yield Candidates(kind, which, row, column, torch.where(under, torch.inf, t))


def _spread(part: Tensor, like: Tensor) -> Vector:
    x, y, z = (part[i].expand(len(like)) for i in range(3))
    return x, y, z


def faces(bodies: Bodies, kind: int, which: Tensor, p: Vector) -> Vector:
    """The outward direction of bodies of one shape at world points on their surfaces."""
    return bodies.outward(which, normal(kind, bodies.inward(which, bodies.offset(which, p))))


def shadows(bodies: Bodies, light: Lamps, p: Vector, frame: Tensor, own: Tensor) -> Tensor:
    """The share [L,M] of each lamp that reaches points, past all bodies of their frame but their own."""
    count = len(light.radius)
    free = torch.ones(count, len(frame), device=frame.device)
    first = frame * bodies.objects
    others = first[:, None] + torch.arange(bodies.objects, device=frame.device)
    position, bound = bodies.position[others], bodies.bound[others]
    there = bodies.shown[others] & (others != own[:, None])
    offset = (position[..., 0] - p[0][:, None], position[..., 1] - p[1][:, None], position[..., 2] - p[2][:, None])
    for lamp in range(count):
        to = tuple(light.position[lamp, i] - p[i] for i in range(3))
        squared = to[0] * to[0] + to[1] * to[1] + to[2] * to[2]
        share = ((offset[0] * to[0][:, None] + offset[1] * to[1][:, None] + offset[2] * to[2][:, None])
                 / squared[:, None]).clamp(0, 1)  # fmt: skip
        past = tuple(offset[i] - share * to[i][:, None] for i in range(3))
        near = past[0] * past[0] + past[1] * past[1] + past[2] * past[2] < (bound + light.radius[lamp] * share) ** 2
        point, other = torch.nonzero(near & there, as_tuple=True)
        dim(bodies, light, lamp, free[lamp], others[point, other], point, _at(p, point))
    return free


def _at(p: Vector, where: Tensor) -> Vector:
    return p[0][where], p[1][where], p[2][where]


def dim(bodies: Bodies, light: Lamps, lamp: int, free: Tensor, which: Tensor, target: Tensor, p: Vector) -> None:
    """Multiply free[target] by what each body `which` lets pass of a lamp to the point p beside it."""
    for kind in range(len(SHAPES)):
        mine = torch.nonzero(bodies.kind[which] == kind)[:, 0]
        body, point = which[mine], _at(p, mine)
        origin = bodies.inward(body, bodies.offset(body, point))
        place = light.position[lamp]
        to = bodies.inward(body, (place[0] - point[0], place[1] - point[1], place[2] - point[2]))
        share = passing(kind, origin, to, bodies.size[body], light.radius[lamp])
        free.scatter_reduce_(0, target[mine], share, "prod")


def reflected(
    bodies: Bodies, p: Vector, direction: Vector, frame: Tensor, own: Tensor
) -> tuple[Tensor, Tensor, Vector, Vector]:
    """Follow rays [M] to the next body: which rays meet one, which entry, where, and its outward direction there."""
    others = (frame * bodies.objects)[:, None] + torch.arange(bodies.objects, device=frame.device)
    position = bodies.position[others]
    offset = tuple(position[..., i] - p[i][:, None] for i in range(3))
    ahead = (offset[0] * direction[0][:, None] + offset[1] * direction[1][:, None]
             + offset[2] * direction[2][:, None]).clamp(min=0)  # fmt: skip
    past = tuple(offset[i] - ahead * direction[i][:, None] for i in range(3))
    near = past[0] ** 2 + past[1] ** 2 + past[2] ** 2 < bodies.bound[others] ** 2
    ray, other = torch.nonzero(near & bodies.shown[others] & (others != own[:, None]), as_tuple=True)
    which = others[ray, other]
    nearest = torch.full((len(frame),), torch.inf, device=frame.device)
    found = torch.full((len(ray),), torch.inf, device=frame.device)
    for kind in range(len(SHAPES)):
        mine = torch.nonzero(bodies.kind[which] == kind)[:, 0]
        body = which[mine]
        origin = bodies.inward(body, bodies.offset(body, _at(p, ray[mine])))
        found[mine] = entry(kind, origin, bodies.inward(body, _at(direction, ray[mine])))
    nearest.scatter_reduce_(0, ray, found, "amin")
    best = torch.nonzero((found == nearest[ray]) & torch.isfinite(found))[:, 0]
    ray, which, t = ray[best], which[best], found[best]
    place = along(_at(p, ray), _at(direction, ray), t)
    face = [torch.zeros_like(t) for _ in range(3)]
    for kind in range(len(SHAPES)):
        mine = torch.nonzero(bodies.kind[which] == kind)[:, 0]
        for target, value in zip(face, faces(bodies, kind, which[mine], _at(place, mine)), strict=True):
            target[mine] = value
    return ray, which, place, (face[0], face[1], face[2])


def mirror(direction: Vector, n: Vector) -> Vector:
    """The direction of a ray after a mirror facing n."""
    twice = 2 * dot(direction, n)
    return direction[0] - twice * n[0], direction[1] - twice * n[1], direction[2] - twice * n[2]
