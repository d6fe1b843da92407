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
    return F.conv2d(x, weight, bias, layer.stride, layer.padding)  # type: ignore[arg-type]


def pixels_last(x: Tensor) -> Tensor:
    """The same with the channels of a pixel beside each other in memory, as convolutions like it."""
    return x.contiguous(memory_format=torch.channels_last)


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
        inner = convolve(self.first, torch.relu(x) if self.first_relu else x)
        branch = convolve(self.second, torch.relu(inner), self.alpha)
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


def stride_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A convolution 11×11 with stride 4 and padding 5 of few channels.

    On a GPU, and for gradients, as one of 3×3 over blocks of 4×4 pixels: libraries have no good kernels for many taps
    of few channels (3 channels, 192 pictures of 64×64 on an H200: 0.23 ms, where other convolutions take 0.005).
    """
    if not x.is_cuda and not torch.is_grad_enabled():
        return F.conv2d(x, weight, bias, 4, 5)
    outputs, inputs = weight.shape[:2]
    taps = F.pad(weight, (0, 1, 0, 1)).view(outputs, inputs, 3, 4, 3, 4)
    filters = taps.permute(0, 1, 3, 5, 2, 4).reshape(outputs, inputs * 16, 3, 3)
    return F.conv2d(F.pixel_unshuffle(F.pad(x, (5, 3, 5, 3)), 4), filters, bias)


class DownBy4(nn.Module):
    """Mean over 4×4 + alpha · [Conv 11×11 with stride 4, ReLU, Conv 3×3]."""

    def __init__(self, inputs: int, outputs: int, *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, outputs, 11, stride=4, padding=5)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def join(self, pooled: Tensor, inner: Tensor) -> Tensor:
        """The mean over 4×4 and what the first convolution made of the map -> [N,out,h,w]."""
        branch = convolve(self.second, torch.relu(inner), self.alpha)
        return branch + match_channels(pooled, branch.shape[1])

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,4h,4w] -> [N,out,h,w]."""
        return self.join(F.avg_pool2d(x, 4), convolve(self.first, x))


class ToVector(nn.Module):
    """Mean over the grid + alpha · [Conv 5×5 with stride 3, ReLU, Conv over all that is left]."""

    def __init__(self, inputs: int, outputs: int, grid: tuple[int, int], *, scale: float) -> None:
        super().__init__()
        self.alpha = _scale(scale)
        self.first = nn.Conv2d(inputs, inputs, 5, stride=3, padding=3)
        self.second = nn.Conv2d(inputs, outputs, ((grid[0] + 1) // 3 + 1, (grid[1] + 1) // 3 + 1))

    def forward(self, x: Tensor) -> Tensor:
        """[N,in,h,w] -> [N,out]."""
        branch = convolve(self.second, torch.relu(convolve(self.first, x)).flatten(1), self.alpha)
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
        inner = torch.relu(convolve(self.first, torch.relu(x)))
        bias = None if self.second.bias is None else scale * self.second.bias
        return upsample_conv(inner, scale * self.second.weight, bias, skip)


def upsample_conv(x: Tensor, weight: Tensor, bias: Tensor | None, skip: Tensor | None = None) -> Tensor:
    """A transposed convolution 12×12 with stride 4 and padding 4, on top of nearest ×4 of `skip` [N,out,h,w].

    An output pixel of phase r reaches three inputs along an axis, through taps r + 8, r + 4 and r: sixteen ordinary 3×3
    filters (of a transposed convolution, which flips them) instead of one sparse large one.
    """
    inputs, outputs = weight.shape[:2]
    taps = weight.view(inputs, outputs, 3, 4, 3, 4)  # [in, out, tap row, phase row, tap column, phase column]
    filters = taps.permute(0, 1, 3, 5, 2, 4).reshape(inputs, outputs * 16, 3, 3)
    phases = F.conv_transpose2d(x, filters, padding=1).unflatten(1, (outputs, 16))
    below = bias if bias is None else bias[:, None, None]
    if skip is not None:
        below = skip if below is None else skip + below
    return interleave(phases if below is None else phases + below.unsqueeze(-3))


def interleave(phases: Tensor) -> Tensor:
    """[N,C,16,h,w] -> [N,C,4h,4w]; colours and masks, which leave the network, come out one plane after the other."""
    channels, height, width = phases.shape[1], phases.shape[3], phases.shape[4]
    if channels > 3:
        return F.pixel_shuffle(phases.flatten(1, 2), 4)
    planes = phases.unflatten(2, (4, 4)).permute(0, 1, 4, 2, 5, 3)
    return planes.reshape(-1, channels, 4 * height, 4 * width)
