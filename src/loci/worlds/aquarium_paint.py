"""One fish, painted into many frames: a body that bends, fins that beat, scales, bands, stripes, spots and an eye.

A fish's own frame: u runs from -1, where the tail begins, to 1 at the nose; v from the belly up; both in units of half
its body's length. F frames, patches of h×w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds import aquarium_canvas as canvas
from loci.worlds.aquarium_species import Looks
from loci.worlds.aquarium_swim import Pose
from loci.worlds.aquarium_tank import step
from loci.worlds.aquarium_water import FOG, Water

REACH = 1.62
"""No part of a fish is farther than this from its middle, in half its body's length."""


class Painted(NamedTuple):
    """Where a fish is: the patch, the pixels it covers and those where it shows, [F,h,w] bool."""

    where: canvas.Patch
    whole: Tensor
    visible: Tensor


class _Local(NamedTuple):
    """Pixels in a fish's own frame, [F,h,w]; `sharp` is how many pixels there are to half its body's length."""

    u: Tensor
    v: Tensor
    sharp: Tensor


def _mix(one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    return one + share[:, None] * (other - one)


def paint(picture: Tensor, water: Water, looks: Looks, hue: Tensor, length: Tensor, pose: Pose, hidden: Tensor,
          longest: float, size: tuple[int, int]) -> Painted:  # fmt: skip
    """Paint a fish.

    Args:
        picture: [F,3,·] canvas, with everything that is farther away, and all plants.
        water: The tank.
        looks: What it looks like.
        hue: [F,3], by how much its colours differ from that.
        length: [F], half its body's length.
        pose: How it holds itself, [F] and [F,3].
        hidden: [F], how many layers of plants are before it.
        longest: No fish of this kind is longer.
        size: The frame's.
    """
    height, width = size
    x, y, z = pose.place.unbind(-1)
    row, column = (1 - y) * height / 2 - 0.5, x * height / 2 + width / 2 - 0.5
    side = 2 * math.ceil(REACH * longest * height / 2) + 2
    where = canvas.patch(row + 0.5, column + 0.5, (side, side), size)
    here = _own_frame(where, row, column, length * height / 2, pose)
    colour, cover = _fish(here, looks, hue, pose)
    light = canvas.read(water.light, where)
    colour = colour * (0.35 + 0.65 * light)
    colour = _mix(colour, water.fog, (FOG * z)[:, None, None].expand_as(cover))
    seen = cover * canvas.read_one(water.clear, hidden, where)
    canvas.blend(picture, where, colour.clamp(0, 1), seen)
    return Painted(where, cover > 0.5, (cover > 0.5) & (seen > 0.5 * cover))


def _own_frame(where: canvas.Patch, row: Tensor, column: Tensor, pixels: Tensor, pose: Pose) -> _Local:
    """Undo place, pitch, turn and bend."""

    def of(values: Tensor) -> Tensor:
        return values[:, None, None]

    size = of((pixels * pose.scale).clamp_min(1.0))
    across, down = (where.column - of(column)) / size, (where.row - of(row)) / size
    cos, sin, facing = of(pose.pitch.cos()), of(pose.pitch.sin()), of(pose.facing)
    u = (across * facing * cos - down * sin) / of(pose.shown)
    v = -across * facing * sin - down * cos
    # The tail swings towards the glass and away: it looks shorter at either end, and sways a little up and down.
    swing, effort = of(pose.beat), of(pose.effort)
    behind = (-0.15 - u).clamp_min(0)
    u = u - behind * (0.55 * effort * swing.sin().square()) / (1 - 0.55 * effort * swing.sin().square())
    v = v - 0.10 * effort * behind * torch.sin(swing + 2.2 * u)
    return _Local(u, v, size)


def _fish(here: _Local, looks: Looks, hue: Tensor, pose: Pose) -> tuple[Tensor, Tensor]:
    """Colours [F,3,h,w], and how much of each pixel is covered [F,h,w]."""

    def of(values: Tensor) -> Tensor:
        return values[:, None, None]

    def tint(values: Tensor) -> Tensor:
        return (values * (1 + hue)).clamp(0, 1)[:, :, None, None]

    u, v, sharp = here
    s = (0.5 + 0.5 * u).clamp(0, 1)
    # From the tail's root the body swells, and closes at the nose.
    close = torch.exp((0.5 * of(looks.nose) - 0.2) * torch.log((1 - s).clamp_min(1e-4)))
    swell = torch.sin(math.pi * s * (1.15 - 0.15 * s)) * close
    outline = torch.where(
        u.abs() < 1, of(looks.height) * 0.98 * swell.clamp_min(0) + of(looks.peduncle) * (1 - s) * (1 - s).sqrt(), -1.0
    )
    outline = torch.minimum(outline, of(looks.height) * 1.15 * (1 - s).sqrt() * 2)
    body = step(outline - v.abs(), 0.9 * sharp) * step(1 - u.abs(), 0.9 * sharp)
    rays = 0.85 + 0.15 * torch.sin(40 * v / (0.4 + (u + 1).abs()))
    fins = torch.maximum(_tail(here, looks), _upright_fins(here, looks, outline))
    colour = tint(looks.fin) * rays[:, None]
    colour = _mix(colour, _skin(here, looks, outline, tint, s), body)
    # The side fin beats before the body.
    flap = of(0.10 + 0.05 * torch.sin(1.3 * pose.beat))
    side = 1 - ((u - 0.28) / 0.16).square() - ((v + 0.12 * of(looks.height) + 0.5 * (0.28 - u)) / flap).square()
    colour = _mix(colour, tint(looks.fin) * 0.85 * rays[:, None], 0.7 * step(side, sharp / 12) * body)
    eye = ((u - 0.74).square() + (v - 0.22 * of(looks.height)).square()).sqrt()
    for radius, shade in ((0.105, 0.92), (0.062, 0.03)):
        colour = _mix(colour, torch.full_like(colour, shade), step(radius - eye, sharp) * body)
    return colour, torch.maximum(body, 0.9 * fins)


def _tail(here: _Local, looks: Looks) -> Tensor:
    u, v, sharp = here
    tall, fork = looks.tail[:, None, None], looks.fork[:, None, None]
    back = ((-0.9 - u) / 0.5).clamp(0, 1)
    spread = looks.peduncle[:, None, None] + (tall - 0.05) * back.sqrt()
    edge = -1.45 + 0.42 * fork * (1 - (v / spread.clamp_min(1e-3)).abs()).clamp(0, 1)
    return step(spread - v.abs(), 0.9 * sharp) * step(u - edge, 0.9 * sharp) * (u < -0.88)


def _upright_fins(here: _Local, looks: Looks, outline: Tensor) -> Tensor:
    """The fins on the back and under the belly, swept towards the tail."""
    u, v, sharp = here
    result = torch.zeros_like(u)
    for high, sign, first, last in ((looks.sail, 1.0, -0.65, 0.45), (looks.keel, -1.0, -0.7, 0.1)):
        out = sign * v - outline.clamp_min(0)
        swept = u + 0.55 * out.clamp_min(0)
        along = ((swept - first) / (last - first)).clamp(0, 1)
        rise = high[:, None, None] * torch.sin(math.pi * along.sqrt()) * (1 - 0.4 * along)
        on = (swept > first) & (swept < last) & (out > -0.05) & (u.abs() < 1)
        result = torch.maximum(result, step(rise - out, 0.9 * sharp) * on)
    return result


def _skin(here: _Local, looks: Looks, outline: Tensor, tint: Callable[[Tensor], Tensor], s: Tensor) -> Tensor:
    """The body's colours, with its pattern and the light on its round side."""
    u, v, sharp = here

    def of(values: Tensor) -> Tensor:
        return values[:, None, None]

    round_ = (v / outline.clamp_min(1e-3)).clamp(-1, 1)
    skin = _mix(tint(looks.belly), tint(looks.back), step(round_ - 0.1 + 0.15 * torch.sin(9 * u), 1.1))
    wavy = of(looks.bands) * (1 - s) + 0.06 * torch.sin(7 * v)
    bands = step(torch.cos(2 * math.pi * (wavy - 0.55)) - 0.45, 3.0) * of(looks.banded)
    stripe = torch.exp(-((round_ - of(looks.stripe)) / 0.22).square()) * of(looks.striped) * step(0.8 - u, 5.0)
    spots = step(torch.sin(19 * u + 3 * torch.sin(9 * v)) * torch.sin(23 * v + 2 * torch.sin(11 * u)) - 0.35, 4.0)
    spots = spots * of(looks.spotted) * step(round_ + 0.35, 2.0)
    skin = _mix(skin, tint(looks.mark), torch.maximum(torch.maximum(bands, stripe), spots).clamp(0, 1))
    fine = (sharp - 12).div(24).clamp(0, 1)  # scales only where there are pixels for them
    scales = 1 + 0.10 * fine * torch.sin(34 * u + 20 * v) * torch.sin(34 * u - 20 * v)
    gill = 1 - 0.25 * torch.exp(-((u - 0.5 + 0.5 * round_.square() * 0.3) / 0.03).square()) * (round_.abs() < 0.7)
    lit = 0.62 + 0.42 * (0.5 + 0.5 * round_) + 0.22 * torch.exp(-((round_ - 0.55) / 0.22).square())
    return skin * (scales * gill * lit)[:, None]
