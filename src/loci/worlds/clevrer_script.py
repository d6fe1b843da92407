"""What happens in a CLEVRER clip: some bodies rest, others enter from the sides, meet them and leave. No pictures here.

Everything is a pure function of keys and runs for all clips of a batch at once, on their device.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from loci import random
from loci.worlds.physics import GRAVITY, Motion, simulate
from loci.worlds.physics_contacts import Bodies, Matter
from loci.worlds.scene import CATER_CAMERA, Camera

MOST = 6
FEWEST = 3
SIZE = 0.45
RATE = 25
SUBSTEPS = 5
SHAPES = ("cube", "sphere", "cylinder")
MATERIALS = ("rubber", "metal")
COLOURS = ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow")

CAMERA = CATER_CAMERA.seen_in((320, 480))
"""Who is in sight is decided by CLEVRER's own frames, so that a clip tells one story at every size."""

_INERTIA = (2 / 3, 2 / 5, 1 / 2)  # of a cube, a ball, a cylinder of unit mass and half extent, about the vertical
_FRICTION = {"rubber": 0.06, "metal": 0.04}
_ROLLING = 0.4  # a ball is slowed by this much of it
_MIDDLE = 2.0  # those that rest do so within this distance of the centre, along each axis
_GAP = 3.2  # in units of SIZE: how far the centres of those that rest are apart
_LAYOUTS = 32
_RIGHT = (0.66300, 0.74862)  # the direction on the floor that is to the right on screen
_FARTHEST, _STEP = 16.0, 0.1  # where an entering body may start, in the world's units, and how finely that is sought
_NOWHERE = 100.0


class Cast(NamedTuple):
    """Who is there: shape, material and colour are [B,N] int64, -1 where a clip has fewer bodies."""

    shape: Tensor
    material: Tensor
    colour: Tensor
    enter: Tensor
    rests: Tensor


def out_of_sight(position: Tensor, camera: Camera = CAMERA) -> Tensor:
    """Whether nothing of a body at these places [...,2] on the floor can be seen."""
    matrix = camera.rows(position.device, position.dtype)
    x, y = position.unbind(-1)
    column, row, _, depth = (r[0] * x + r[1] * y + r[2] * SIZE + r[3] for r in matrix)
    reach = math.sqrt(2) * SIZE
    wide, high = reach * matrix[0, :3].norm(), reach * matrix[1, :3].norm()
    # Only the sides and the near edge let bodies out of sight: the far floor ends above the frame or at the horizon.
    return (column.abs() > depth + wide) | (-row > depth + high) | (depth < reach)


def play(keys: Tensor, frames: int) -> tuple[Cast, Matter, Motion]:
    """The cast of each clip and how it moves."""
    cast = _cast(keys)
    start, speed = _starts(keys, cast)
    there = cast.shape >= 0
    matter = _matter(cast)
    zero = torch.zeros_like(matter.mass)
    spin = torch.where(cast.rests, zero, 1.5 * random.normal(random.fold(keys, "spin"), (MOST,), torch.float64))
    angle = 2 * math.pi * random.uniform(random.fold(keys, "angle"), (MOST,), torch.float64)
    enter = torch.where(there, cast.enter, frames)
    motion = simulate(Bodies(start, speed, angle, spin), matter, enter, out_of_sight, frames, RATE, SUBSTEPS)
    return cast, matter, motion


def _cast(keys: Tensor) -> Cast:
    """No two bodies of a clip look alike; one to three rest, the others enter one after another."""
    count = FEWEST + random.integers(random.fold(keys, "count"), MOST - FEWEST + 1)[..., None]
    looks = len(SHAPES) * len(MATERIALS) * len(COLOURS)
    look = random.bits(random.fold(keys, "looks"), (looks,)).argsort(-1)[..., :MOST]
    number = torch.arange(MOST, device=keys.device)
    resting = torch.minimum(1 + random.integers(random.fold(keys, "resting"), 3)[..., None], count - 1)
    rests = number < resting
    wait = 10 + random.integers(random.fold(keys, "wait"), 26, (MOST,))
    wait = torch.where(number == resting, wait - 10, wait)
    enter = torch.where(rests, 0, wait).cumsum(-1).masked_fill(rests, 0)
    kept = number < count
    colour = look % len(COLOURS)
    material = look // len(COLOURS) % len(MATERIALS)
    shape = look // (len(COLOURS) * len(MATERIALS))
    shape, material, colour = (torch.where(kept, value, -1) for value in (shape, material, colour))
    return Cast(shape, material, colour, enter, rests & kept)


def _matter(cast: Cast) -> Matter:
    """All weigh the same; cubes are squares from above, balls roll easily, rubber holds more than metal."""
    device = cast.shape.device
    one = torch.ones(cast.shape.shape, dtype=torch.float64, device=device)
    inertia = one.new_tensor(_INERTIA)[cast.shape.clamp_min(0)] * SIZE**2
    friction = one.new_tensor([_FRICTION[name] for name in MATERIALS])[cast.material.clamp_min(0)]
    rolls = cast.shape == SHAPES.index("sphere")
    return Matter(
        square=cast.shape == SHAPES.index("cube"),
        extent=one * SIZE,
        mass=one,
        inertia=inertia,
        friction=torch.where(rolls, _ROLLING * friction, friction),
    )


def _starts(keys: Tensor, cast: Cast) -> tuple[Tensor, Tensor]:
    """Where each body begins and how fast, [B,N,2] each."""

    def numbers(name: str, *shape: int) -> Tensor:
        return random.uniform(random.fold(keys, name), shape, torch.float64)

    resting = _resting(numbers("resting places", _LAYOUTS, MOST, 2), cast.rests)
    # Most of those that enter aim at one that rests, the others at the middle.
    which = (numbers("aim", MOST) * cast.rests.sum(-1, keepdim=True)).to(torch.int64)
    aim = resting.gather(-2, which[..., None].expand(*which.shape, 2)) + 0.8 * SIZE * (2 * numbers("miss", MOST, 2) - 1)
    middle = _MIDDLE * 0.75 * (2 * numbers("middle", MOST, 2) - 1)
    aim = torch.where((numbers("chance", MOST) < 0.7)[..., None], aim, middle)
    turn = (2 * numbers("heading", MOST) - 1) * math.radians(28) + math.pi * (numbers("side", MOST) < 0.5)
    right = math.atan2(_RIGHT[1], _RIGHT[0])
    heading = torch.stack([(turn + right).cos(), (turn + right).sin()], -1)
    back = torch.arange(0, _FARTHEST, _STEP, device=keys.device, dtype=torch.float64)
    tried = aim[..., None, :] - heading[..., None, :] * back[:, None]
    hidden = out_of_sight(tried)
    distance = back[hidden.to(torch.uint8).argmax(-1)]
    slowing = GRAVITY * _matter(cast).friction
    arrives = 0.8 + 3.2 * numbers("speed", MOST)
    speed = (arrives.square() + 2 * slowing * distance).sqrt()[..., None] * heading
    place = torch.where(cast.rests[..., None], resting, aim - distance[..., None] * heading)
    there = (cast.shape >= 0)[..., None]
    return place.where(there, _NOWHERE), speed.where(there & ~cast.rests[..., None], 0.0)


def _resting(layouts: Tensor, rests: Tensor) -> Tensor:
    """The first of some layouts [B,L,N,2] in which those that rest keep their distance, or the widest."""
    places = _MIDDLE * (2 * layouts - 1)
    apart = (places[..., :, None, :] - places[..., None, :, :]).square().sum(-1).sqrt()
    matters = rests[..., :, None] & rests[..., None, :] & ~torch.eye(MOST, dtype=torch.bool, device=rests.device)
    gap = apart.masked_fill(~matters[..., None, :, :], _FARTHEST).amin((-2, -1)).clamp_max(_GAP * SIZE)
    best = gap.argmax(-1)[..., None, None, None].expand(*rests.shape[:-1], 1, MOST, 2)
    return places.gather(-3, best).squeeze(-3)
