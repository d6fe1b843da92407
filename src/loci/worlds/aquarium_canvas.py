"""Painting small patches into many frames at once, each frame at a place of its own.

A canvas is [F,C,H·W+1]: F frames, their pixels in a row, and one more that takes what falls outside the frame.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Patch(NamedTuple):
    """A rectangle of h×w pixels in each frame.

    Attributes:
        pixel: [F,h·w] int64, which pixel of the canvas each one is.
        row: [F,h,1] float32, the pixels' rows.
        column: [F,1,w] float32, the pixels' columns.
    """

    pixel: Tensor
    row: Tensor
    column: Tensor


def blank(frames: int, channels: int, size: tuple[int, int], device: torch.device, value: float = 0.0) -> Tensor:
    """An even canvas."""
    return torch.full((frames, channels, size[0] * size[1] + 1), value, device=device)


def canvas(pictures: Tensor) -> Tensor:
    """Pictures [F,C,H,W] as a canvas."""
    return torch.nn.functional.pad(pictures.flatten(2), (0, 1))


def pictures(painted: Tensor, size: tuple[int, int]) -> Tensor:
    """A canvas as pictures [F,C,H,W]."""
    return painted[..., :-1].unflatten(-1, size)


def patch(row: Tensor, column: Tensor, extent: tuple[int, int], size: tuple[int, int]) -> Patch:
    """The patch of this extent whose middle is nearest to each frame's row and column [F] (pixels, also outside)."""
    device = row.device
    rows = (row - extent[0] / 2).round()[:, None] + torch.arange(extent[0], device=device)
    columns = (column - extent[1] / 2).round()[:, None] + torch.arange(extent[1], device=device)
    inside = ((rows >= 0) & (rows < size[0]))[:, :, None] & ((columns >= 0) & (columns < size[1]))[:, None, :]
    index = rows[:, :, None].to(torch.int64) * size[1] + columns[:, None, :].to(torch.int64)
    index = torch.where(inside, index, size[0] * size[1])
    return Patch(index.flatten(1), rows[:, :, None], columns[:, None, :])


def read(painted: Tensor, where: Patch) -> Tensor:
    """What a canvas [F,C,·] has in a patch, [F,C,h,w]."""
    index = where.pixel[:, None].expand(-1, painted.shape[1], -1)
    return painted.gather(2, index).unflatten(2, (where.row.shape[1], where.column.shape[2]))


def read_one(painted: Tensor, channel: Tensor, where: Patch) -> Tensor:
    """What one channel of a canvas, given for each frame [F], has in a patch, [F,h,w]."""
    index = channel[:, None] * painted.shape[2] + where.pixel
    return painted.flatten(1).gather(1, index).unflatten(1, (where.row.shape[1], where.column.shape[2]))


def write(painted: Tensor, where: Patch, values: Tensor) -> None:
    """Put values [F,C,h,w] into a patch, in place."""
    index = where.pixel[:, None].expand(-1, painted.shape[1], -1)
    painted.scatter_(2, index, values.flatten(2))


def blend(painted: Tensor, where: Patch, colour: Tensor, opacity: Tensor) -> None:
    """Lay a colour [F,C,h,w] over a patch, as opaque as [F,h,w] says, in place."""
    there = read(painted, where)
    write(painted, where, there + opacity[:, None] * (colour - there))
