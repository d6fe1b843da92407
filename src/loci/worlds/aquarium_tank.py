"""What stands still in the tank of the aquarium: hills at the back, sand, boulders, and where the plants grow.

Lengths are in half the frame's height, x to the right from the middle; rows run from 0 at the top to 1 at the bottom.
Colours are as displayed, 0 to 1. C clips, L layers of plants.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loci import random

LAYERS = (0.75, 0.45, 0.12)
"""How far back each layer of plants stands: 0 at the glass, 1 at the back wall. From the back to the front."""

BLADES = 8
FLOOR = 0.86
"""The row where the sand begins, at the back wall."""

_CLUMPS = 3
_ROCKS = 6


class Tank(NamedTuple):
    """A tank per clip, or per frame once its entries are repeated.

    Attributes:
        mood: [C,8] numbers from 0 to 1: how light and level change, and how the water is tinted.
        blades: [C,L,BLADES,8] numbers from 0 to 1, except for the first: each plant's foot, from -1 to 1 across.
        hills: [C,2,2,H,W], how dark each ridge of hills is, and where it covers.
        sand: [C,2,H,W], how light the sand is, and where it covers.
        rocks: [C,2,H,W], how light the boulders are, and where they cover.
    """

    mood: Tensor
    blades: Tensor
    hills: Tensor
    sand: Tensor
    rocks: Tensor

    def at(self, clips: Tensor) -> Tank:
        """The tanks of some clips."""
        return Tank(*(value[clips] for value in self))


def axes(size: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows [1,H,1] and the x [1,1,W] of all pixels."""
    height, width = size
    row = (torch.arange(height, device=device) + 0.5) / height
    x = (torch.arange(width, device=device) + 0.5 - width / 2) * (2 / height)
    return row[None, :, None], x[None, None, :]


def step(value: Tensor, sharpness: float | Tensor) -> Tensor:
    """From 0 to 1 where the value passes 0, over 1/sharpness."""
    return (0.5 + value * sharpness).clamp(0, 1)


def furnish(keys: Tensor, size: tuple[int, int]) -> Tank:
    """A tank for each key."""

    def numbers(name: str, *shape: int) -> Tensor:
        return random.uniform(random.fold(keys, name), shape)

    row, x = axes(size, keys.device)
    mood = numbers("mood", 8)
    blades = numbers("blades", len(LAYERS), BLADES, 8)
    clump = blades[..., :_CLUMPS, 0].repeat_interleave(-(-BLADES // _CLUMPS), -1)[..., :BLADES]
    foot = 2 * clump - 1 + 0.16 * (blades[..., 1] + blades[..., 2] - 1)
    return Tank(
        mood=mood,
        blades=torch.cat([foot[..., None], blades[..., 1:]], -1),
        hills=_hills(numbers("hills", 2, 4), x, row, size[0]),
        sand=_sand(mood[:, 0], numbers("sand", *size), x, row, size[0]),
        rocks=_rocks(numbers("rocks", _ROCKS, 4), x, row, size),
    )


def _hills(numbers: Tensor, x: Tensor, row: Tensor, height: int) -> Tensor:
    ridges = []
    for number, (base, dark) in enumerate(((0.70, 0.85), (0.77, 0.62))):
        a, b, c, d = (numbers[:, number, n, None, None] for n in range(4))
        crest = base + 0.05 * torch.sin(2 * x + 9 * a) + 0.03 * torch.sin((5 + 2 * b) * x + 9 * c)
        crest = crest + 0.015 * torch.sin(11 * x + 9 * d)
        rough = dark * (1 + 0.10 * torch.sin(21 * x + 17 * row + 9 * a) * torch.sin(13 * x - 29 * row))
        ridges.append(torch.stack([rough, step(row - crest, height / 3)], 1))
    return torch.stack(ridges, 1)


def _sand(mood: Tensor, grains: Tensor, x: Tensor, row: Tensor, height: int) -> Tensor:
    """Grains, soft patches and ripples; darker towards the back."""
    edge = FLOOR + 0.012 * torch.sin(1.7 * x + 9 * mood[:, None, None]) + 0.006 * torch.sin(5 * x)
    below = (row - edge).clamp_min(0)
    patches = torch.nn.functional.avg_pool2d(grains[:, None], 5, 1, 2, count_include_pad=False)[:, 0]
    ripples = 0.06 * torch.sin(90 * (below + 0.05).sqrt() + 3 * x)
    shade = 0.85 + 0.25 * (grains - 0.5) + 0.5 * (patches - 0.5) + ripples
    return torch.stack([shade * (0.55 + 3 * below).clamp_max(1), step(row - edge, height / 2)], 1)


def _rocks(numbers: Tensor, x: Tensor, row: Tensor, size: tuple[int, int]) -> Tensor:
    """Boulders on the floor, lit from above and from the right."""
    height, width = size
    shade = torch.zeros(len(numbers), height, width, device=numbers.device)
    covered = torch.zeros_like(shade)
    for number in range(_ROCKS):
        where, wide, tall, kind = (numbers[:, number, n, None, None] for n in range(4))
        radius = 0.07 + 0.16 * wide
        across = (x - width / height * (2 * where - 1)) / radius
        up = (FLOOR + 0.05 + 0.02 * kind - row) / (0.04 + 0.5 * radius * (0.5 + 0.5 * tall))
        bumps = 0.06 * torch.sin(5 * across + 9 * kind) + 0.04 * torch.sin(11 * across - 7 * up)
        pits = 0.05 * torch.sin(17 * across + 9 * tall) * torch.sin(13 * up + 4 * across)
        gray = (0.3 + 0.4 * (up + 0.3 * across).clamp(-0.5, 1) + pits).clamp_min(0)
        cover = step(1 + bumps - across.square() - up.square(), height / 12) * step(up + 0.3, height / 6)
        shade = shade + cover * (gray - shade)
        covered = torch.maximum(covered, cover)
    return torch.stack([shade, covered], 1)
