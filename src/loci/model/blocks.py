"""The residual blocks of the encoder and the decoder.

A scaled block multiplies its branch by a learnable number that starts near zero (ReZero), so that the network begins as
a chain of skips.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loci.kernels.convolution import conv2d
from loci.kernels.precision import rectified
from loci.kernels.stride import pooled_by_4, upsample_conv


def match_channels(x: Tensor, channels: int, dim: int = 1) -> Tensor:
    """A skip between different widths: the mean of runs of channels, each channel repeated, or both."""
    width = x.shape[dim]
    if width == channels:
        return x
    shared = math.gcd(width, channels)
    x = x.unflatten(dim, (shared, width // shared)).mean(dim + 1) if shared < width else x
    return x.repeat_interleave(channels // shared, dim) if shared < channels else x


def convolve(layer: nn.Conv2d, x: Tensor, gain: Tensor | None = None) -> Tensor:
    """The layer, times a number; vectors [N,in] are maps of one pixel.

    The number goes onto the weights, which are few, and not onto the result: one pass over it less, and nothing of it
    has to be kept for the number's gradient.
    """
    weight, bias = layer.weight, layer.bias
    if gain is not None:
        weight, bias = gain * weight, None if bias is None else gain * bias
    if x.dim() == 2:
        return F.linear(x, weight.flatten(1), bias)
    if layer.stride == (1, 1):
        return conv2d(x, weight, bias, layer.padding)
    return F.conv2d(x, weight, bias, layer.stride, layer.padding)  # type: ignore[arg-type]


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
        """[N,in,h,w] -> [N,out,h,w]; kernels of 1 also take vectors [N,in]."""
        inner = convolve(self.first, rectified(x) if self.first_relu else x)
        branch = convolve(self.second, rectified(inner), self.alpha)
        return branch + match_channels(x, branch.shape[1])  # branch first: its layout in memory is the sum's


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

    def join(self, pooled: Tensor, inner: Tensor) -> Tensor:
        """The mean over 4×4 and what the first convolution made of the map -> [N,out,h,w]."""
        branch = convolve(self.second, rectified(inner), self.alpha)
        return branch + match_channels(pooled, branch.shape[1])

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,4h,4w] -> [N,out,h,w]."""
        return self.join(pooled_by_4(x), convolve(self.first, x))


class ToVector(nn.Module):
    """Mean over the grid + alpha · [Conv 5×5 with stride 3, ReLU, Conv over all that is left]."""

    def __init__(self, inputs: int, outputs: int, grid: tuple[int, int], *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, inputs, 5, stride=3, padding=3)
        self.second = nn.Conv2d(inputs, outputs, ((grid[0] + 1) // 3 + 1, (grid[1] + 1) // 3 + 1))

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,h,w] -> [N,out]."""
        branch = convolve(self.second, rectified(convolve(self.first, x)).flatten(1), self.alpha)
        return branch + match_channels(x.mean((2, 3)), branch.shape[1])


class UpBy4(nn.Module):
    """Nearest ×4 + alpha · [ReLU, Conv 3×3, ReLU, ConvTranspose 12×12 with stride 4]."""

    def __init__(self, inputs: int, outputs: int, *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, inputs, 3, padding=1)
        self.second = nn.ConvTranspose2d(inputs, outputs, 12, stride=4, padding=4)

    def forward(self, x: Tensor, below: Tensor | None = None, gain: Tensor | None = None) -> Tensor:
        """[N,in,h,w] -> [N,out,4h,4w]; given those, nearest ×4 of `below` [N,out,h,w] + gain · all of it."""
        skip: Tensor = match_channels(x, self.second.out_channels)
        scale: Tensor = self.alpha
        if below is not None and gain is not None:
            skip, scale = below + gain * skip, gain * scale
        inner = rectified(convolve(self.first, rectified(x)))
        bias = None if self.second.bias is None else scale * self.second.bias
        return upsample_conv(inner, scale * self.second.weight, bias, skip)
