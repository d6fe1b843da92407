"""What moves in the tank besides the fish: light, water and plants.

Units are those of `aquarium_tank`; times are in seconds. F frames of any clips.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds import aquarium_canvas as canvas
from loci.worlds.aquarium_tank import BLADES, FLOOR, LAYERS, Tank, axes, step

FOG = 0.6
"""How much of what is at the back wall is hidden by the water."""

_TALL, _WIDE = 0.74, 0.31  # in the frame's height: the tallest plant, and the room for its leaves and sway


class Water(NamedTuple):
    """The tank in F frames.

    Attributes:
        picture: [F,3,H·W+1] canvas, all but the fish.
        light: [F,1,H·W+1] canvas, how brightly each place is lit; about 1.
        clear: [F,L+1,H·W+1] canvas, the share that passes the foremost 0, 1, ... L layers of plants.
        fog: [F,3], the colour of distant things.
    """

    picture: Tensor
    light: Tensor
    clear: Tensor
    fog: Tensor


def _sine(time: Tensor, number: Tensor, fast: float, slow: float) -> Tensor:
    """A sine of time whose phase, and period between two limits, hang on one number from 0 to 1; [F,1,1]."""
    period = fast + (slow - fast) * (number * 7 % 1)
    return torch.sin(2 * math.pi * (time / period + number))[:, None, None]


def _mix(one: Tensor, other: Tensor, share: Tensor | float) -> Tensor:
    return one + share * (other - one)


def caustics(x: Tensor, y: Tensor, time: Tensor) -> Tensor:
    """A net of bright lines that wander: where three wave trains, bent by slower ones, cancel."""
    bent_x = x + 0.35 * torch.sin(1.9 * y + 0.9 * time) + 0.12 * torch.sin(5.1 * y - 1.3 * time)
    bent_y = y + 0.35 * torch.sin(2.3 * x - 0.7 * time) + 0.12 * torch.sin(4.3 * x + 1.1 * time)
    first = torch.sin(5.0 * bent_x + 0.8 * time)
    second = torch.sin(-2.5 * bent_x + 4.3 * bent_y - 0.9 * time)
    third = torch.sin(-2.5 * bent_x - 4.3 * bent_y + 0.7 * time)
    return torch.exp(-4.5 * (first + second + third).abs())


def fill(tank: Tank, time: Tensor, size: tuple[int, int]) -> Water:
    """The tank at these times [F]; its entries are those of the frames, too."""
    height = size[0]
    row, x = axes(size, time.device)
    when, mood = time[:, None, None], tank.mood
    shallow, fog, sand, air = _tints(mood)
    glow = 1 + 0.10 * _sine(time, mood[:, 1], 12, 30) + 0.04 * _sine(time, mood[:, 2], 4, 9)
    shafts = torch.sin(2.3 * (x + 0.5 * row) + 0.35 * when) + torch.sin(5.9 * (x + 0.55 * row) - 0.5 * when)
    shafts = shafts.clamp_min(0) * (1 - row) * (1 - row).sqrt()
    net = caustics(1.3 * x, 2 * row, 1.1 * when)
    light = glow * (0.92 + 0.16 * shafts + 0.28 * net * (1.1 - row))
    colour = _mix(shallow, fog, torch.exp(0.7 * torch.log(row))[:, None]) * (1 + 0.22 * shafts + 0.05 * net)[:, None]
    for hill in range(tank.hills.shape[1]):
        rough, cover = tank.hills[:, hill].unbind(1)
        colour = _mix(colour, (fog * 0.85 + 0.03) * (rough * light)[:, None], cover[:, None])
    shade, cover = tank.sand.unbind(1)
    far = 1 / (0.12 + (row - FLOOR).clamp_min(0))  # how many times smaller things on the floor are here than nearby
    lit = glow * shade * (0.62 + 0.9 * caustics(0.3 * x * far, 0.9 * far, 1.2 * when))
    ground = _mix(sand * lit[:, None], 2 * fog, (0.45 - 3 * (row - FLOOR)).clamp(0, 0.45)[:, None])
    colour = _mix(colour, ground, cover[:, None])
    shade, cover = tank.rocks.unbind(1)
    colour = _mix(colour, (0.75 * sand + 0.25 * fog) * (shade * light)[:, None], cover[:, None])
    picture, lights = canvas.canvas(colour), canvas.canvas(light[:, None])
    clear = _plants(picture, lights, tank, time, size, fog)
    level = 0.045 + 0.05 * (0.5 + 0.5 * _sine(time, mood[:, 3], 10, 25))
    ripples = 0.006 * torch.sin(7 * x + 2.1 * when) + 0.004 * torch.sin(13 * x - 3.3 * when)
    depth = row - level - ripples
    shine = torch.exp(-((depth - 0.012) * 60).square()) * (0.4 + 0.3 * torch.sin(9 * x - 1.7 * when))
    wet = canvas.pictures(picture, size) * (1 + 0.35 * torch.exp(-depth.clamp_min(0) * 14))[:, None]
    dry = air * (glow * (0.9 + 0.5 * row))[:, None]
    colour = _mix(dry, wet + 0.8 * shine[:, None], step(depth, height / 1.5)[:, None])
    return Water(canvas.canvas(colour), lights, clear, fog)


def _tints(mood: Tensor) -> tuple[Tensor, ...]:
    """The colours of shallow and of deep water, of sand and of the room above, [F,3,1,1] each."""
    even = mood.new_tensor([[0.10, 0.42, 0.50], [0.01, 0.13, 0.24], [0.72, 0.63, 0.46], [0.62, 0.70, 0.74]])
    return tuple((even * (0.88 + 0.24 * mood[:, None, 4:7])).clamp(0, 1)[..., None, None].unbind(1))


def _plants(picture: Tensor, light: Tensor, tank: Tank, time: Tensor, size: tuple[int, int], fog: Tensor) -> Tensor:
    """Paint the plants, back to front, and say what passes the foremost layers."""
    clear = canvas.blank(len(time), len(LAYERS) + 1, size, time.device, 1.0)
    for layer, distance in enumerate(LAYERS):
        open_ = canvas.blank(len(time), 1, size, time.device, 1.0)
        for blade in range(BLADES):
            _plant(picture, light, open_, tank.blades[:, layer, blade], distance, time, size, fog)
        clear[:, len(LAYERS) - layer :] *= open_  # the hindmost layer is passed only by what is behind all layers
    return clear


def _plant(picture: Tensor, light: Tensor, open_: Tensor, numbers: Tensor, distance: float, time: Tensor,
           size: tuple[int, int], fog: Tensor) -> None:  # fmt: skip
    """Paint one plant: a ribbon, or a stem with leaves, that sways the more the higher up."""
    height, width = size
    near = 1 / (1 + 0.5 * distance)
    foot, tall, sway, pace, phase, lean, kind, hue = (value[:, None, None] for value in numbers.unbind(-1))
    base = (FLOOR + 0.11 * (1 - distance)) * height
    grown = (0.34 + 0.40 * tall) * near * height
    extent = (math.ceil(_TALL * height), math.ceil(_WIDE * height))
    row = torch.full_like(time, base - extent[0] / 2)
    where = canvas.patch(row, (foot[:, 0, 0] + 1) * width / 2, extent, size)
    up = (base - where.row) / grown
    swing = torch.sin(2 * math.pi * (time[:, None, None] / (2.5 + 3 * pace) + phase) - 1.6 * up)
    middle = 0.14 * (lean - 0.5) * up + (0.03 + 0.07 * sway) * swing * up.clamp(0, 1).square()
    across = (where.column + 0.5 - width / 2) * (2 / height) - foot * width / height - middle
    ribbon = torch.sin(math.pi * (0.12 + 0.88 * up.clamp(0, 1))).clamp_min(0).sqrt()
    leaves = ribbon * (0.30 + 0.70 * torch.sin(20 * up + 0.8 * across.sign()).abs())
    broad = near * torch.where(kind > 0.4, (0.07 + 0.05 * sway) * leaves, (0.025 + 0.015 * sway) * ribbon)
    cover = step(broad - across.abs(), height / 2) * ((up > 0) & (up < 1))
    green = torch.cat([0.10 + 0.26 * hue, 0.34 + 0.14 * (1 - hue), 0.10 + 0.06 * hue], 1)[..., None]
    shade = (0.45 + 0.65 * up.clamp(0, 1)) * (1 + 0.3 * (across / broad.clamp_min(1e-3)).clamp(-1, 1))
    veins = 1 + 0.08 * torch.sin(60 * up - 250 * across.abs()) + 0.25 * torch.exp(-(across * height / 2.5).square())
    colour = _mix(green * (shade * veins)[:, None] * canvas.read(light, where), fog, FOG * distance)
    canvas.blend(picture, where, colour, cover)
    canvas.blend(open_, where, torch.zeros_like(colour[:, :1]), cover)
