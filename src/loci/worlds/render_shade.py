"""The light that comes back: from the floor with its shadows, from rubber, from metal that mirrors both.

All light is linear. Energies are what the floor returns, so a surface of colour c returns c / FLOOR times as much.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds.render_bodies import Bodies, dim, mirror, reflected, shadows
from loci.worlds.render_camera import Eye, boxes, centres, pixels
from loci.worlds.render_light import AMBIENT, Lamps, received, together
from loci.worlds.render_shapes import CONE, CUBE, CYLINDER, SPHERE, SPL, Vector, along, dot, unit
from loci.worlds.scene import SHAPES

FLOOR = 0.715
CONTACT = 0.25
BOUNCE = 1.0
RUBBER_GLOSS, RUBBER_SHINE = 0.004, 3.0
METAL_DIFFUSE, METAL_MIRROR = 0.02, 0.84
RINGS_DIFFUSE, RINGS_MIRROR = 0.3, 0.32
"""The snitch's rings mirror one another over and over: we stand that in by matt gold."""
METAL_GLOSS, METAL_SHINE = 0.15, 450.0
METAL_GLOW, METAL_HALO = 0.49, 15.0
ROUGH = 0.12
SKY = (0.032, 0.032, 0.032)


class Floor(NamedTuple):
    """The floor as a grid of frame positions: its points, what each lamp gives there [L,P], and its size."""

    points: Vector
    given: Tensor
    size: tuple[int, int]


def lay(eye: Eye, light: Lamps, size: tuple[int, int]) -> Floor:
    """The floor seen through a grid of this size; beyond the horizon it is very far away."""
    device = light.radius.device
    row, column = torch.meshgrid(centres(size[0], device), centres(size[1], device), indexing="ij")
    x, y, z = eye.direction(row.flatten(), column.flatten())
    t = eye.centre[2] / -z.clamp(max=-1e-3)
    points = (eye.centre[0] + t * x, eye.centre[1] + t * y, torch.zeros_like(t))
    up = (torch.zeros_like(t), torch.zeros_like(t), torch.ones_like(t))
    return Floor(points, received(light, points, up), size)


def floor_shadows(bodies: Bodies, eye: Eye, light: Lamps, floor: Floor, frames: int) -> tuple[Tensor, Tensor]:
    """What reaches the floor: of each lamp [L,F,P] and of the light from everywhere [F,P], as shares."""
    height, width = floor.size
    count = height * width
    device = light.radius.device
    free = torch.ones(len(light.radius), frames * count, device=device)
    here = torch.nonzero(bodies.shown)[:, 0]
    centre = torch.stack([part[here] for part in bodies.place], -1)
    for lamp in range(len(light.radius)):
        hulls = _cast_on_floor(centre, bodies.bound[here], light, lamp)
        box, row, column = pixels(boxes(eye, hulls, floor.size))
        which, pixel = here[box], row * width + column
        points = (floor.points[0][pixel], floor.points[1][pixel], floor.points[2][pixel])
        dim(bodies, light, lamp, free[lamp], which, bodies.frame(which) * count + pixel, points)
    return free.view(-1, frames, count), _contact(bodies, floor, frames)


def _cast_on_floor(centre: Tensor, radius: Tensor, light: Lamps, lamp: int) -> Tensor:
    """Points [E,8,3] on the floor whose hull holds a ball's shadow, its soft edge included.

    Each corner of the ball's upright box, grown by the soft edge, is carried down along the light. A ball near the
    lamp's height throws its shadow anywhere: then the points lie all around.
    """
    place, soft = light.position[lamp], light.radius[lamp]
    top = centre[:, 2] + radius
    grown = radius + soft * (top / place[2]).clamp(0, 1)
    signs = torch.tensor([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], device=centre.device)
    corner = centre[:, None] + grown[:, None, None] * signs.to(centre.dtype)
    fall = place[2] - corner[..., 2].clamp(min=0)
    carried = place + (corner - place) * (place[2] / fall.clamp(min=1e-3))[..., None]
    beyond = (fall < 0.1).any(1)
    everywhere = 100.0 * signs.to(centre.dtype)
    carried = torch.where(beyond[:, None, None], everywhere, carried)
    return torch.cat((carried[..., :2], torch.zeros_like(carried[..., :1])), -1)


CONTACT_SIZE = {CUBE: 1.15, SPHERE: 1.0, CYLINDER: 0.95, CONE: 0.8, SPL: 0.9}
"""For each shape, the radius of the ball that hides about as much of the sky."""


def _contact(bodies: Bodies, floor: Floor, frames: int) -> Tensor:
    """The share [F,P] of the light from everywhere that bodies leave to the floor: balls hide r²·cos / d² of it."""
    scale = torch.tensor([CONTACT_SIZE[kind] for kind in range(len(SHAPES))], device=bodies.size.device)
    squared = (scale[bodies.kind.clamp(min=0)] * bodies.size) ** 2 * bodies.shown
    strength = (CONTACT * squared * bodies.place[2].clamp(min=0)).view(frames, -1)
    place = [part.view(frames, -1) for part in bodies.place]
    squared = squared.view(frames, -1)
    free = torch.ones(frames, len(floor.points[0]), device=squared.device)
    for n in range(bodies.objects):
        x, y, z = (part[:, n, None] for part in place)
        distance = (floor.points[0] - x) ** 2 + (floor.points[1] - y) ** 2 + z * z
        distance = torch.maximum(distance, squared[:, n, None])
        free *= 1 - strength[:, n, None] / (distance * torch.sqrt(distance)).clamp(min=1e-6)
    return free


class Surface(NamedTuple):
    """Points of bodies to be shaded: where, facing where, seen along which direction, whose, in which frame."""

    point: Vector
    normal: Vector
    seen: Vector
    which: Tensor
    frame: Tensor


def shade(bodies: Bodies, eye: Eye, light: Lamps, floor: Floor, free: Tensor, open_: Tensor, s: Surface) -> Tensor:
    """The light [M,3] that surfaces send to the eye; `free` and `open_` are the floor's shadows."""
    reaching = shadows(bodies, light, s.point, s.normal, s.frame, s.which)
    colour = bodies.colour[s.which]
    arriving = received(light, s.point, s.normal) * reaching
    matt = colour / FLOOR * (together(light, arriving) + _surround(s.normal))
    bounce = mirror(s.seen, s.normal)
    metal = bodies.metal[s.which]
    glint = _glint(light, s.point, bounce, metal) * reaching
    gloss = torch.where(metal[:, None], colour, 1.0) * together(light, glint)
    rings = bodies.kind[s.which] == SPL
    result = torch.where(metal, torch.where(rings, RINGS_DIFFUSE, METAL_DIFFUSE), 1.0)[:, None] * matt + gloss
    shiny = torch.nonzero(metal)[:, 0]
    ray = (bounce[0][shiny], bounce[1][shiny], bounce[2][shiny])
    start = (s.point[0][shiny], s.point[1][shiny], s.point[2][shiny])
    around = _around(bodies, eye, light, floor, free, open_, start, ray, s.frame[shiny], s.which[shiny])
    strength = torch.where(rings[shiny], RINGS_MIRROR, METAL_MIRROR)[:, None]
    return result.index_add(0, shiny, strength * colour[shiny] * around)


def _surround(n: Vector) -> Tensor:
    """Light from everywhere [M,3]: the sky above, less from the floor below."""
    up = 0.5 + 0.5 * n[2]
    return (up + BOUNCE * (1 - up))[:, None] * torch.tensor(AMBIENT, device=up.device)


def _glint(light: Lamps, p: Vector, ray: Vector, metal: Tensor) -> Tensor:
    """How much of each lamp [L,M] a mirrored ray shows: on metal a sharp glint in a wide halo, on rubber a sheen."""
    to = tuple(light.position[:, i, None] - p[i] for i in range(3))
    off = dot(unit((to[0], to[1], to[2])), ray) - 1
    squared = to[0] ** 2 + to[1] ** 2 + to[2] ** 2
    sharp = METAL_GLOSS * METAL_SHINE * torch.exp(METAL_SHINE * off)
    wide = METAL_GLOW * METAL_HALO * torch.exp(METAL_HALO * off)
    sheen = RUBBER_GLOSS * RUBBER_SHINE * torch.exp(RUBBER_SHINE * off)
    return torch.where(metal, sharp + wide, sheen) / (2 * squared)


def _around(
    bodies: Bodies,
    eye: Eye,
    light: Lamps,
    floor: Floor,
    free: Tensor,
    open_: Tensor,
    start: Vector,
    ray: Vector,
    frame: Tensor,
    own: Tensor,
) -> Tensor:
    """What mirrors see [M,3]: the sky, the floor with the shadows of this frame, other bodies."""
    ambient = torch.tensor(AMBIENT, device=frame.device)
    # Brushed metal blurs the horizon: within ROUGH of it floor and sky are mixed.
    below = (0.5 - ray[2] / (2 * ROUGH)).clamp(0, 1)
    below = (below * below * (3 - 2 * below))[:, None]
    t = start[2] / (-ray[2]).clamp(min=ROUGH / 2)
    x, y, z = along(start, ray, t)
    point = (x, y, torch.zeros_like(z))
    up = (torch.zeros_like(x), torch.zeros_like(x), torch.ones_like(x))
    given = received(light, point, up)
    height, width = floor.size
    row, column, _ = eye.seen(point)
    row = ((row + 1) * (height / 2)).clamp(0, height - 1).to(torch.int64)
    column = ((column + 1) * (width / 2)).clamp(0, width - 1).to(torch.int64)
    at = row * width + column
    result = together(light, given * free[:, frame, at]) + open_[frame, at][:, None] * ambient
    result = below * result + (1 - below) * torch.tensor(SKY, device=frame.device)
    which_ray, which, place, normal = reflected(bodies, start, ray, frame, own)
    lit = together(light, received(light, place, normal)) + _surround(normal)
    result[which_ray] = bodies.colour[which] / FLOOR * lit * torch.where(bodies.metal[which], 0.6, 1.0)[:, None]
    return result
