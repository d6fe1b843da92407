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
from loci.worlds.render_shapes import BOUNDS, ROUND, Vector, along, dot, entry, normal
from loci.worlds.scene import MATERIALS, SHAPES, Scene


class Bodies(NamedTuple):
    """Tables over entries; `place` is where, `turn` the nine numbers of the rotation to the world, row after row."""

    objects: int
    kind: Tensor
    size: Tensor
    bound: Tensor
    metal: Tensor
    colour: Tensor
    place: Vector
    turn: tuple[Tensor, ...]
    present: Tensor
    shown: Tensor

    def entries(self, kind: int, among: Tensor) -> Tensor:
        """The numbers of the entries of one shape, among those marked."""
        return torch.nonzero((self.kind == kind) & among)[:, 0]

    def frame(self, which: Tensor) -> Tensor:
        """The frames that entries belong to."""
        return torch.div(which, self.objects, rounding_mode="floor")

    def inward(self, which: Tensor, *vectors: Vector) -> list[Vector]:
        """World directions, each in the frame and units of its body."""
        turn, scale = [part[which] for part in self.turn], 1 / self.size[which]
        result = []
        for v in vectors:
            x, y, z = ((turn[i] * v[0] + turn[3 + i] * v[1] + turn[6 + i] * v[2]) * scale for i in range(3))
            result.append((x, y, z))
        return result

    def outward(self, which: Tensor, v: Vector) -> Vector:
        """Directions in the bodies' frames, in the world (not scaled)."""
        turn = [part[which] for part in self.turn]
        x, y, z = (turn[3 * i] * v[0] + turn[3 * i + 1] * v[1] + turn[3 * i + 2] * v[2] for i in range(3))
        return x, y, z

    def offset(self, which: Tensor, p: Vector) -> Vector:
        """From the bodies' origins to world points."""
        x, y, z = (p[i] - self.place[i][which] for i in range(3))
        return x, y, z


def tables(scene: Scene) -> Bodies:
    """The tables of one scene ([1,T,N] and so on)."""
    frames, objects = scene.present.shape[1:]

    def repeat(value: Tensor) -> Tensor:
        return value.expand(frames, *value.shape[1:]).flatten(0, 1)

    kind = repeat(scene.shape)
    size = repeat(scene.size).to(torch.float32)
    bound = torch.tensor(BOUNDS, device=kind.device)[kind.clamp(min=0)] * size
    x, y, z = scene.position.to(torch.float32).reshape(-1, 3).T.contiguous()
    return Bodies(
        objects,
        kind,
        size,
        bound,
        repeat(scene.material) == MATERIALS.index("metal"),
        repeat(scene.colour).to(torch.float32),
        (x, y, z),
        tuple(scene.rotation.to(torch.float32).reshape(-1, 9).T.contiguous()),
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
        centre = torch.stack([part[here] for part in bodies.place], -1)
        box, row, column = pixels(boxes(eye, corners(centre, bodies.bound[here]), eye.size))
        which = here[box]
        # A ray's direction is linear in (row, column), so it is turned into the body's frame once for each body.
        parts = [_spread(part, here) for part in (eye.centre, eye.ahead, eye.down, eye.right)]
        parts[0] = bodies.offset(here, parts[0])
        origin, ahead, down, right = ([c[box] for c in part] for part in bodies.inward(here, *parts))
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
    return bodies.outward(which, normal(kind, bodies.inward(which, bodies.offset(which, p))[0]))


def _at(p: Vector, where: Tensor) -> Vector:
    return p[0][where], p[1][where], p[2][where]


class _Company(NamedTuple):
    """For each of M points, all N bodies of its frame [M,N]: which, how far to their middles, who counts."""

    which: Tensor
    offset: Vector
    there: Tensor


def _company(bodies: Bodies, p: Vector, frame: Tensor, own: Tensor) -> _Company:
    which = (frame * bodies.objects)[:, None] + torch.arange(bodies.objects, device=frame.device)
    x, y, z = (bodies.place[i][which] - p[i][:, None] for i in range(3))
    return _Company(which, (x, y, z), bodies.shown[which] & (which != own[:, None]))


def shadows(bodies: Bodies, light: Lamps, p: Vector, n: Vector, frame: Tensor, own: Tensor) -> Tensor:
    """The share [L,M] of each lamp that reaches points facing n, past all bodies of their frame but their own."""
    free = torch.ones(len(light.radius), len(frame), device=frame.device)
    company = _company(bodies, p, frame, own)
    bound, far = bodies.bound[company.which], dot(company.offset, company.offset)
    for lamp in range(len(light.radius)):
        to = _towards(light, lamp, p)
        squared = dot(to, to)[:, None]
        along_way = dot(company.offset, (to[0][:, None], to[1][:, None], to[2][:, None]))
        share = (along_way / squared).clamp(0, 1)
        past = far + share * (share * squared - 2 * along_way)
        near = past < (bound + light.radius[lamp] * share) ** 2
        # What faces away from a lamp gets nothing from it anyway.
        point, other = torch.nonzero(near & company.there & (dot(n, to) > 0)[:, None], as_tuple=True)
        dim(bodies, light, lamp, free[lamp], company.which[point, other], point, _at(p, point))
    return free


def _towards(light: Lamps, lamp: int, p: Vector) -> Vector:
    x, y, z = (light.position[lamp, i] - p[i] for i in range(3))
    return x, y, z


def dim(bodies: Bodies, light: Lamps, lamp: int, free: Tensor, which: Tensor, target: Tensor, p: Vector) -> None:
    """Multiply free[target] by what each body `which` lets pass of a lamp to the point p beside it."""
    origin, to, radius = bodies.offset(which, p), _towards(light, lamp, p), light.radius[lamp]
    share = (-dot(origin, to) / dot(to, to)).clamp(1e-3, 1)
    miss = along(origin, to, share)
    near = torch.nonzero(dot(miss, miss) < (bodies.bound[which] + radius * share) ** 2)[:, 0]
    which, target, origin, to = which[near], target[near], _at(origin, near), _at(to, near)
    for kind in range(len(SHAPES)):
        mine = torch.nonzero(bodies.kind[which] == kind)[:, 0]
        body = which[mine]
        size = bodies.size[body]
        inner, way = _at(origin, mine), _at(to, mine)
        if kind in ROUND:
            inner, way = ((v[0] / size, v[1] / size, v[2] / size) for v in (inner, way))
        else:
            inner, way = bodies.inward(body, inner, way)
        free.scatter_reduce_(0, target[mine], passing(kind, inner, way, size, radius), "prod")


def reflected(
    bodies: Bodies, p: Vector, direction: Vector, frame: Tensor, own: Tensor
) -> tuple[Tensor, Tensor, Vector, Vector]:
    """Follow rays [M] to the next body: which rays meet one, which entry, where, and its outward direction there."""
    company = _company(bodies, p, frame, own)
    ahead = dot(company.offset, (direction[0][:, None], direction[1][:, None], direction[2][:, None])).clamp(min=0)
    past = dot(company.offset, company.offset) - ahead * ahead
    ray, other = torch.nonzero((past < bodies.bound[company.which] ** 2) & company.there & (ahead > 0), as_tuple=True)
    which = company.which[ray, other]
    found = torch.full((len(ray),), torch.inf, device=frame.device)
    for kind in range(len(SHAPES)):
        mine = torch.nonzero(bodies.kind[which] == kind)[:, 0]
        start = bodies.offset(which[mine], _at(p, ray[mine]))
        found[mine] = entry(kind, *bodies.inward(which[mine], start, _at(direction, ray[mine])))
    nearest = torch.full((len(frame),), torch.inf, device=frame.device).scatter_reduce_(0, ray, found, "amin")
    best = torch.nonzero((found == nearest[ray]) & torch.isfinite(found))[:, 0]
    ray, which, t = ray[best], which[best], found[best]
    place = along(_at(p, ray), _at(direction, ray), t)
    face = (torch.zeros_like(t), torch.zeros_like(t), torch.zeros_like(t))
    for kind in range(len(SHAPES)):
        mine = torch.nonzero(bodies.kind[which] == kind)[:, 0]
        for target, value in zip(face, faces(bodies, kind, which[mine], _at(place, mine)), strict=True):
            target[mine] = value
    return ray, which, place, face


def mirror(direction: Vector, n: Vector) -> Vector:
    """The direction of a ray after a mirror facing n."""
    twice = 2 * dot(direction, n)
    return direction[0] - twice * n[0], direction[1] - twice * n[1], direction[2] - twice * n[2]
