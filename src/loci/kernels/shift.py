"""A bilinear shift of pictures as four reads for each pixel.

As products with banded matrices, its plain twin `loci.model.geometry.centre` on a CPU, the shifts of CATER's 240×320
maps took 0.7 ms of a training step on an H200, not counting what brought the maps into shape for them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class Shift(torch.autograd.Function):
    """`centre` as four reads for each pixel. Its gradient is the shift back; a position gets none."""

    @staticmethod
    def forward(ctx: FunctionCtx, images: Tensor, position: Tensor) -> Tensor:
        """[...,C,H,W] and [...,2+] -> [...,C,H,W]."""
        ctx.save_for_backward(position)
        return shift_by_reads(images, position)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, signal: Tensor) -> tuple[Tensor, None]:
        """From where the pixels went."""
        (position,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return shift_by_reads(signal, -position), None


def shift_by_reads(images: Tensor, position: Tensor) -> Tensor:
    """`centre` as a weighted sum of four neighbours."""
    height, width = images.shape[-2:]
    pixels, total = images.flatten(-2), torch.zeros_like(images)
    for row, down in _neighbours(position[..., 0], height):
        for column, across in _neighbours(position[..., 1], width):
            index = (row[..., :, None] * width + column[..., None, :]).flatten(-2)
            weight = (down[..., :, None] * across[..., None, :])[..., None, :, :]
            total = total + weight * pixels.gather(-1, index[..., None, :].expand_as(pixels)).view_as(images)
    return total


def _neighbours(position: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """The two input pixels [...,count] that each output pixel lies between, and their weights: 0 outside."""
    distance = position[..., None] * count / 2
    whole = distance.floor()
    pixel = torch.arange(count, device=position.device) + whole.long()
    weights = (1 - (distance - whole), distance - whole)
    found = []
    for place, weight in zip((pixel, pixel + 1), weights, strict=True):
        inside = (place >= 0) & (place < count)
        found.append((place.clamp(0, count - 1), torch.where(inside, weight, 0)))
    return found
