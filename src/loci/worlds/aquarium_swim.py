"""How the fish of the aquarium swim: closed forms of time, so that any frame can be had without those before it.

A fish goes round on a flat, long loop seen from the side (so it turns by swimming towards the glass or away from it),
with a slower rise and fall and small darts laid over it. A third of the fish are a school that shares one loop.

Units: half the frame's height; x to the right, y up from the frame's middle; z from 0 at the glass to 1 at the back.
Angles are in radians, times in seconds. C clips, N fish.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from loci import random
from loci.worlds.aquarium_species import SCHOOLING, SPECIES

TOP, BOTTOM = 0.62, -0.74
"""Between these heights the fish stay."""

NARROWEST = 0.3
"""A fish that swims towards the glass still shows this share of its length."""

_SCHOOL_SIZE, _SIZES = (0.10, 0.135), (0.14, 0.30)
_ROUND = 0.16  # how far towards the glass and back a loop leads
_PERSPECTIVE = 0.55
_BOB = 0.02  # the change of distance that is seen as a change of size


class Fish(NamedTuple):
    """What is drawn once per clip.

    Attributes:
        species: [C,N] int64, an index of SPECIES.
        length: [C,N], half the body's length.
        hue: [C,N,3], by how much its colours differ from its species'.
        centre: [C,N,3], the middle of its loop.
        reach: [C,N,2], half the loop's width, and half its rise.
        period: [C,N,3], of the loop, of the rise, and of a tail's beat.
        phase: [C,N,3], of the same, from 0 to 1.
        dart: [C,N,2,3], reach, period and phase of small movements along x and y.
    """

    species: Tensor
    length: Tensor
    hue: Tensor
    centre: Tensor
    reach: Tensor
    period: Tensor
    phase: Tensor
    dart: Tensor

    def at(self, clips: Tensor) -> Fish:
        """The fish of some clips."""
        return Fish(*(value[clips] for value in self))


class Pose(NamedTuple):
    """Where fish are and how they hold themselves, [F,N,...].

    Attributes:
        place: [F,N,3], x, y, z of the body's middle.
        scale: [F,N], how large it looks for its distance.
        facing: [F,N], 1 to the right, -1 to the left.
        shown: [F,N], the share of its length that is seen.
        pitch: [F,N], how far its nose points up.
        beat: [F,N], the phase of its tail.
        effort: [F,N], how strongly it beats.
    """

    place: Tensor
    scale: Tensor
    facing: Tensor
    shown: Tensor
    pitch: Tensor
    beat: Tensor
    effort: Tensor


def school(fish: int) -> range:
    """Which fish are a school; they come one after another, for the order of fish is that of their distance."""
    return range(fish // 3, fish // 3 + fish // 3)


def longest(number: int, fish: int) -> float:
    """The fish of this number never looks longer than twice this."""
    nearest = max(0.0, 1 - (number + 0.8) / fish - _BOB)
    return (_SCHOOL_SIZE if number in school(fish) else _SIZES)[1] / (1 + _PERSPECTIVE * nearest)


def cast(keys: Tensor, fish: int, aspect: float) -> Fish:
    """The fish of each clip, from the back to the front."""

    def numbers(name: str, *shape: int) -> Tensor:
        return random.uniform(random.fold(keys, name), (fish, *shape))

    together = torch.zeros(fish, dtype=torch.bool, device=keys.device)
    together[school(fish).start : school(fish).stop] = True
    leader = school(fish).start

    def shared(values: Tensor) -> Tensor:
        """The school has its first fish's value."""
        kept = together.view(1, fish, *[1] * (values.dim() - 2))
        return torch.where(kept, values[:, leader : leader + 1], values)

    solitary, schooling = [n for n in range(len(SPECIES)) if n not in SCHOOLING], list(SCHOOLING)
    drawn = shared(numbers("species"))
    alone = torch.tensor(solitary, device=keys.device)[(drawn * len(solitary)).to(torch.int64)]
    common = torch.tensor(schooling, device=keys.device)[(drawn * len(schooling)).to(torch.int64)]
    size = numbers("size")
    small, large = (low + (high - low) * size * size.sqrt() for low, high in (_SCHOOL_SIZE, _SIZES))
    length = torch.where(together, small, large)
    distance = 1 - (torch.arange(fish, device=keys.device) + 0.2 + 0.6 * numbers("distance")) / fish
    offset = torch.where(together[:, None], numbers("offset", 2) - 0.5, 0.0) * length.new_tensor([0.75, 0.45])
    darts = numbers("darts", 2, 3)
    dart = torch.stack([0.01 + 0.035 * darts[..., 0], 2.5 + 3 * darts[..., 1], darts[..., 2]], -1)
    loop = shared(numbers("loop", 4))
    room = (aspect - 0.8 * length - torch.where(together, 0.42, 0.04)).clamp_min(0.1)
    middle = 0.65 * room * (2 * loop[..., 0] - 1)
    height = 0.30 * length + 0.08
    rise = 0.05 + 0.20 * loop[..., 1]
    low, high = BOTTOM + rise + height, TOP - rise - height
    rest = low + (high - low) * loop[..., 2]
    centre = torch.stack([middle + offset[..., 0], rest + offset[..., 1], distance], -1)
    reach = torch.stack([(room - middle.abs()) * (0.6 + 0.4 * loop[..., 3]), rise], -1)
    pace = shared(numbers("pace", 2))
    tail = 0.35 + 0.45 * length / _SIZES[1] + 0.15 * numbers("tail")
    # The wider the loop, the longer it takes: at most 0.25 to 0.55 a second.
    around = 2 * math.pi * reach[..., 0] / (0.25 + 0.30 * pace[..., 0])
    period = torch.stack([around, 9 + 12 * pace[..., 1], tail], -1)
    phases, late = shared(numbers("phase", 3)), torch.where(together, 0.5 * (numbers("late") - 0.5), 0.0)
    phase = torch.stack([phases[..., 0] + late / around, phases[..., 1], numbers("beat")], -1)
    hue = 0.16 * (numbers("hue", 3) - 0.5)
    return Fish(torch.where(together, common, alone), length, hue, centre, reach, period, phase, dart)


def swim(fish: Fish, time: Tensor) -> Pose:
    """The fish at these times [F]; its entries are those of the frames, too."""
    when = time[:, None]
    turn = 2 * math.pi / fish.period
    loop, rise, beat = (when[..., None] * turn + 2 * math.pi * fish.phase).unbind(-1)
    rate = 2 * math.pi / fish.dart[..., 1]
    jitter = when[..., None] * rate + 2 * math.pi * fish.dart[..., 2]
    small, fast = fish.dart[..., 0] * jitter.sin(), fish.dart[..., 0] * rate * jitter.cos()
    wide, high = fish.reach.unbind(-1)
    x = fish.centre[..., 0] + wide * loop.sin() + small[..., 0]
    y = (fish.centre[..., 1] + high * rise.sin() + small[..., 1]).clamp(BOTTOM, TOP)
    z = (fish.centre[..., 2] + _BOB * loop.cos()).clamp(0, 1)
    along = wide * turn[..., 0] * loop.cos() + fast[..., 0]
    up = high * turn[..., 1] * rise.cos() + fast[..., 1]
    away = _ROUND * turn[..., 0] * loop.sin()
    forward = (along.square() + away.square()).sqrt().clamp_min(1e-6)
    speed = (forward.square() + up.square()).sqrt()
    return Pose(
        place=torch.stack([x, y, z], -1),
        scale=1 / (1 + _PERSPECTIVE * z),
        facing=torch.where(along < 0, -1.0, 1.0),
        shown=(along.abs() / forward).clamp_min(NARROWEST),
        pitch=(torch.atan(up / forward) * 0.8).clamp(-0.6, 0.6),
        beat=beat,
        effort=0.45 + 0.55 * (speed / 0.5).clamp_max(1),
    )
