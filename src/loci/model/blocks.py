"""The residual blocks of the encoder and the decoder.

A scaled block multiplies its branch by a learnable number that starts near zero (ReZero), so that the network begins as
a chain of skips.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def match_channels(x: Tensor, channels: int, dim: int = 1) -> Tensor:
    """A skip between different widths: the mean of runs of channels, each channel repeated, or both."""
    width = x.shape[dim]
    if width == channels:
        return x
    shared = math.gcd(width, channels)
    x = x.unflatten(dim, (shared, width // shared)).mean(dim + 1) if shared < width else x
    return x.repeat_interleave(channels // shared, dim) if shared < channels else x


def _scale(start: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([start]))


class Residual(nn.Module):
    """Skip + alpha · [ReLU, Conv, ReLU, Conv]; alpha is 1 unless scaled."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, *, first_relu: bool = True, scale: float | None = None
    ) -> None:
        super().__init__()
        self.first_relu = first_relu
        self.alpha = None if scale is None else _scale(scale)
        self.first = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
        self.second = nn.Conv2d(outputs, outputs, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,h,w] -> [N,out,h,w]."""
        branch = self.second(torch.relu(self.first(torch.relu(x) if self.first_relu else x)))
        skip = match_channels(x, branch.shape[1])
        return skip + branch if self.alpha is None else skip + self.alpha * branch


class ResidualLinear(nn.Module):
    """Skip + alpha · [ReLU, Linear, ReLU, Linear] on vectors; alpha is 1 unless scaled."""

    def __init__(self, inputs: int, outputs: int, *, scale: float | None = None) -> None:
        super().__init__()
        self.alpha = None if scale is None else _scale(scale)
        self.first = nn.Linear(inputs, outputs)
        self.second = nn.Linear(outputs, outputs)

    def branch(self, x: Tensor) -> Tensor:
        """[...,in] -> [...,out], without the skip."""
        branch: Tensor = self.second(torch.relu(self.first(torch.relu(x))))
        return branch if self.alpha is None else self.alpha * branch

    def forward(self, x: Tensor) -> Tensor:
        """[...,in] -> [...,out]."""
        return match_channels(x, self.second.out_features, x.dim() - 1) + self.branch(x)


class DownBy4(nn.Module):
    """Mean over 4×4 + alpha · [Conv 11×11 with stride 4, ReLU, Conv 3×3]."""

    def __init__(self, inputs: int, outputs: int, *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, outputs, 11, stride=4, padding=5)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,4h,4w] -> [N,out,h,w]."""
        branch = self.second(torch.relu(self.first(x)))
        return match_channels(F.avg_pool2d(x, 4), branch.shape[1]) + self.alpha * branch


class ToVector(nn.Module):
    """Mean over the grid + alpha · [Conv 5×5 with stride 3, ReLU, Conv over all that is left]."""

    def __init__(self, inputs: int, outputs: int, grid: tuple[int, int], *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, inputs, 5, stride=3, padding=3)
        self.second = nn.Conv2d(inputs, outputs, ((grid[0] + 1) // 3 + 1, (grid[1] + 1) // 3 + 1))

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,h,w] -> [N,out,1,1]."""
        branch = self.second(torch.relu(self.first(x)))
        return match_channels(x.mean((2, 3), keepdim=True), branch.shape[1]) + self.alpha * branch


class UpBy4(nn.Module):
    """Nearest ×4 + alpha · [ReLU, Conv 3×3, ReLU, ConvTranspose 12×12 with stride 4]."""

    def __init__(self, inputs: int, outputs: int, *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, inputs, 3, padding=1)
        self.second = nn.ConvTranspose2d(inputs, outputs, 12, stride=4, padding=4)

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,h,w] -> [N,out,4h,4w]."""
        branch = upsample_conv(torch.relu(self.first(torch.relu(x))), self.second.weight, self.second.bias)
        return F.interpolate(match_channels(x, branch.shape[1]), scale_factor=4.0, mode="nearest") + self.alpha * branch


def upsample_conv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A transposed convolution 12×12 with stride 4 and padding 4, as a 3×3 convolution and a pixel shuffle.

    Every output pixel of phase r reaches three inputs along an axis, through taps r + 8, r + 4 and r: sixteen ordinary
    3×3 filters instead of one sparse large one, which is what convolution libraries are fast at.
    """
    inputs, outputs = weight.shape[:2]
    taps = weight.view(inputs, outputs, 3, 4, 3, 4).flip(
        2, 4
    )  # [in, out, tap row, phase row, tap column, phase column]
    filters = taps.permute(1, 3, 5, 0, 2, 4).reshape(outputs * 16, inputs, 3, 3)
    phases = F.conv2d(x, filters, None if bias is None else bias.repeat_interleave(16), padding=1)
    return F.pixel_shuffle(phases, 4)
