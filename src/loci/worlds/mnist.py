"""The 70 000 digits of MNIST, which ship with the package (their licence: mnist.md)."""

from __future__ import annotations

import functools
import gzip
import math
from importlib import resources
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from loci.data.source import Split

VALIDATION = 5_000
"""The last of the 60 000 training digits, kept for validation."""


class Digits(NamedTuple):
    """Digits sorted by class, and the part of each image that is moved: its ink, or the whole box.

    Attributes:
        images: [M,28,28] uint8.
        corner: [M,2] int64, row and column where that part begins.
        extent: [M,2] int64, its height and width.
        reach: The largest of all heights and widths.
        first: [10] int64, where each class begins.
        amount: [10] int64, how many digits each class has.
    """

    images: Tensor
    corner: Tensor
    extent: Tensor
    reach: int
    first: Tensor
    amount: Tensor

    def to(self, device: torch.device) -> Digits:
        """The same digits on another device."""
        images, corner, extent, first, amount = (
            value.to(device) for value in (self.images, self.corner, self.extent, self.first, self.amount)
        )
        return Digits(images, corner, extent, self.reach, first, amount)

    def cut(self, chosen: Tensor) -> Tensor:
        """The parts that move of some digits, at the upper left of [...,reach,reach] uint8, zero around."""
        padded = torch.nn.functional.pad(self.images[chosen.flatten()], (0, self.reach, 0, self.reach))
        offset = torch.arange(self.reach, device=padded.device)
        rows, columns = (self.corner[chosen.flatten()][..., None] + offset).unbind(1)
        which = torch.arange(len(padded), device=padded.device)[:, None, None]
        return padded[which, rows[:, :, None], columns[:, None, :]].view(*chosen.shape, self.reach, self.reach)


def _idx(name: str) -> Tensor:
    """An array of bytes in the IDX format: zero, zero, type, rank, sizes (big-endian), values."""
    content = gzip.decompress(resources.files(__package__).joinpath(f"mnist_{name}.idx.gz").read_bytes())
    rank = content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, 4 + 4 * rank, 4)]
    values = np.frombuffer(content, np.uint8, math.prod(shape), 4 + 4 * rank)
    return torch.from_numpy(values.reshape(shape).copy())


def _ink(images: Tensor) -> tuple[Tensor, Tensor]:
    """Corner and extent of each image's ink, [M,2] each."""
    rows, columns = (images.amax(axis) > 0 for axis in (2, 1))
    first = torch.stack([rows.byte().argmax(1), columns.byte().argmax(1)], 1)
    behind = torch.stack([rows.flip(1).byte().argmax(1), columns.flip(1).byte().argmax(1)], 1)
    return first, images.shape[-1] - behind - first


@functools.cache
def digits(split: Split, cropped: bool, device: torch.device) -> Digits:
    """The digits of a split, loaded once per process: training and validation digits are apart, test has MNIST's own.

    Args:
        split: Which digits.
        cropped: Whether the ink alone is moved, or the whole 28×28 boxes.
        device: Where they are kept.
    """
    if device.type != "cpu":
        return digits(split, cropped, torch.device("cpu")).to(device)
    part = "test" if split == "test" else "train"
    images, labels = _idx(f"{part}_images"), _idx(f"{part}_labels")
    if split != "test":
        kept = slice(None, -VALIDATION) if split == "train" else slice(-VALIDATION, None)
        images, labels = images[kept], labels[kept]
    order = labels.argsort(stable=True)
    images, count = images[order], labels.to(torch.int64).bincount(minlength=10)
    if cropped:
        corner, extent = _ink(images)
    else:
        corner = torch.zeros(len(images), 2, dtype=torch.int64)
        extent = torch.full_like(corner, images.shape[-1])
    return Digits(images, corner, extent, int(extent.max()), count.cumsum(0) - count, count)
