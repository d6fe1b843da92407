"""From the frame into the scene: the ray of every sample, and which pixels a ball can touch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds.render_shapes import Vector
from loci.worlds.scene import Camera

NEAREST = 0.05
"""Depth in the units of the camera's last row, about the world's."""


class Eye(NamedTuple):
    """A camera as rays: the ray through (row, column) is centre + t·(ahead + column·right + row·down)."""

    rows: Tensor
    centre: Tensor
    ahead: Tensor
    right: Tensor
    down: Tensor
    size: tuple[int, int]

    def direction(self, row: Tensor, column: Tensor) -> Vector:
        """The directions of rays through positions (row, column) in [-1, 1]."""
        x, y, z = (self.ahead[i] + column * self.right[i] + row * self.down[i] for i in range(3))
        return x, y, z

    def seen(self, p: Vector) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and depth of world points; what is behind the camera counts as close before it.

        Written out: a matrix product may be rounded to few digits on a GPU.
        """
        first, second, depth = (r[0] * p[0] + r[1] * p[1] + r[2] * p[2] + r[3] for r in self.rows[[0, 1, 3]])
        ahead = depth.clamp(min=NEAREST)
        return -second / ahead, first / ahead, depth


def open_eye(camera: Camera, size: tuple[int, int], device: torch.device | str) -> Eye:
    """The rays of a camera whose frames have this size."""
    rows = camera.seen_in(size).rows("cpu", torch.float64)
    inverse = torch.linalg.inv(rows[[0, 1, 3], :3])
    parts = (-(inverse @ rows[[0, 1, 3], 3]), inverse[:, 2], inverse[:, 0], -inverse[:, 1])
    centre, ahead, right, down = (part.to(device, torch.float32) for part in parts)
    return Eye(rows.to(device, torch.float32), centre, ahead, right, down, size)


def centres(count: int, device: torch.device | str) -> Tensor:
    """Where `count` pixels in a row have their centres, in [-1, 1] from edge to edge."""
    return (2 * torch.arange(count, device=device, dtype=torch.float32) + 1) / count - 1


class Boxes(NamedTuple):
    """Rectangles of pixels: rows top … bottom - 1, columns left … right - 1."""

    top: Tensor
    bottom: Tensor
    left: Tensor
    right: Tensor


def boxes(eye: Eye, points: Tensor, size: tuple[int, int]) -> Boxes:
    """The pixels [E] that the hulls of points [E,P,3] can touch in a frame of this size, with half a pixel to spare."""
    height, width = size
    x, y, z = points.unbind(-1)
    row, column, depth = eye.seen((x, y, z))
    # A point behind the camera has no place in the frame: its hull may reach anywhere.
    behind = (depth < NEAREST).any(-1)
    edges = []
    for value, count in ((row, height), (column, width)):
        low = torch.floor((value.amin(-1) + 1) * (count / 2) - 0.5)
        high = torch.ceil((value.amax(-1) + 1) * (count / 2) + 0.5)
        low, high = torch.where(behind, 0.0, low), torch.where(behind, float(count), high)
        edges += [low.clamp(0, count).to(torch.int64), high.clamp(0, count).to(torch.int64)]
    return Boxes(*edges)


def pixels(area: Boxes) -> tuple[Tensor, Tensor, Tensor]:
    """All pixels of all boxes, one after another: which box, which row, which column."""
    high, wide = area.bottom - area.top, area.right - area.left
    count = high * wide
    box = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    number = torch.arange(len(box), device=count.device) - (count.cumsum(0) - count)[box]
    width = wide[box]
    down = torch.div(number, width, rounding_mode="floor")
    return box, area.top[box] + down, area.left[box] + number - down * width


def corners(centre: Tensor, radius: Tensor) -> Tensor:
    """The corners [E,8,3] of the upright boxes around balls: centres [E,3], radii [E]."""
    signs = torch.tensor([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], device=centre.device)
    return centre[:, None] + radius[:, None, None] * signs.to(centre.dtype)
