"""CLEVR's lamps, what they give to a surface, and how softly a body stands in their way."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds.render_shapes import BOUNDS, DISTANCES, ROUND, SPHERE, SPL, Vector, along, dot

GOLDEN = (math.sqrt(5.0) - 1) / 2


class Lamps(NamedTuple):
    """Square lamps that face the origin: position [L,3], energy [L,3] (linear RGB), half their edge [L]."""

    position: Tensor
    energy: Tensor
    radius: Tensor


POSITIONS = (
    (6.44671, -2.90517, 4.2584),
    (-4.67112, -4.0136, 3.01122),
    (-1.1685, 2.64602, 5.81574),
    (118.5, -58.6, 258.1),
)
ENERGIES = ((5.419, 5.011, 4.295), (1.122, 1.181, 1.530), (2.268, 2.290, 2.256), (7583.0, 7359.0, 7512.0))
RADII = (0.34, 0.31, 0.46, 24.0)
AMBIENT = (0.053, 0.055, 0.054)
"""Key, fill and back lamp, a far one like a hazy sun, and the light from everywhere; energies as the floor returns
them. The places are CLEVR's, the rest is fitted to CATER's look (docs/worlds.md)."""

NEAR = 3
"""The lamps that a jitter moves; the sun stays."""


def lamps(moved: Tensor | None, device: torch.device | str) -> Lamps:
    """The lamps of one scene, the near ones moved by [NEAR,3] from their places."""
    position, energy, radius = (torch.tensor(v, device=device) for v in (POSITIONS, ENERGIES, RADII))
    if moved is not None:
        position[:NEAR] += moved
    return Lamps(position, energy, radius)


def received(light: Lamps, p: Vector, n: Vector) -> Tensor:
    """What each lamp gives [L, ...] to a surface at p facing n, per unit of its energy, were nothing in between."""
    shape = (-1, *(1 for _ in range(p[0].dim())))
    position = [light.position[:, i].view(shape) for i in range(3)]
    to = (position[0] - p[0], position[1] - p[1], position[2] - p[2])
    squared = dot(to, to)
    reach = torch.sqrt(dot((position[0], position[1], position[2]), (position[0], position[1], position[2])))
    facing = dot((position[0], position[1], position[2]), to).clamp(min=0) / reach
    return dot(n, to).clamp(min=0) * facing / (squared * squared)


def together(light: Lamps, shares: Tensor) -> Tensor:
    """What the lamps give [M,3] when these shares [L,M] of their energies arrive.

    Added one by one: the sums of a matrix product may be rounded otherwise on another processor.
    """
    parts = (share[:, None] * energy for share, energy in zip(shares, light.energy, strict=True))
    return functools.reduce(torch.add, parts)


def passing(kind: int, origin: Vector, to: Vector, scale: Tensor, radius: Tensor) -> Tensor:
    """The share of a lamp's light that passes a body, from 0 to 1, at points seen from the body's own frame.

    Of the light's cone, from a point (`origin`) to the lamp (at `origin + to`, of this radius), the body leaves free
    what lies beyond its edge: the least clearance along the way, in units of the cone's radius there. Clearance /
    distance has one minimum along a ray past a convex body, which golden sections find.

    Args:
        kind: The body's shape.
        origin: Points in the body's own frame and units.
        to: The way to the lamp, likewise.
        scale: The body's size.
        radius: The lamp's.
    """
    squared = dot(to, to)
    middle = -dot(origin, to) / squared
    if kind in ROUND:
        t = middle.clamp(1e-3, 1.0)
        return _edge((DISTANCES[SPHERE](along(origin, to, t)) + (0.05 if kind == SPL else 0.0)) * scale / (radius * t))
    reach = BOUNDS[kind] * torch.rsqrt(squared)
    low, high = (middle - reach).clamp(1e-3, 1.0), (middle + reach).clamp(1e-3, 1.0)
    span = high - low
    first, second = high - GOLDEN * span, low + GOLDEN * span

    def ratio(t: Tensor) -> Tensor:
        return DISTANCES[kind](along(origin, to, t)) / t

    at_first, at_second = ratio(first), ratio(second)
    for _ in range(6):
        left = at_first < at_second
        low, high = torch.where(left, low, first), torch.where(left, second, high)
        span = high - low
        probe = torch.where(left, high - GOLDEN * span, low + GOLDEN * span)
        found = ratio(probe)
        first, second = torch.where(left, probe, second), torch.where(left, first, probe)
        at_first, at_second = torch.where(left, found, at_second), torch.where(left, at_first, found)
    return _edge(torch.minimum(at_first, at_second) * scale / radius)


def _edge(clearance: Tensor) -> Tensor:
    """How much of a disc lies beyond a straight edge this many radii from its middle (a cubic close to the arc's)."""
    k = clearance.clamp(-1, 1)
    return 0.5 + k * (0.75 - 0.25 * k * k)
