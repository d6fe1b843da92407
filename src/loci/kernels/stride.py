"""Convolutions with a stride of 4 as ordinary ones of 3×3 over blocks of 4×4 pixels.

Libraries have no good kernels for large filters of few channels. The plain twins are torch's own `conv2d` and
`conv_transpose2d`; tests hold both to them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from loci.kernels.convolution import conv2d


def pixels_last(x: Tensor) -> Tensor:
    """The same with the channels of a pixel beside each other in memory, as convolutions like it."""
    return x.contiguous(memory_format=torch.channels_last)


def pooled_by_4(x: Tensor) -> Tensor:
    """[...,H,W] -> [...,H/4,W/4], the mean of 4×4 pixels.

    The library's pooling keeps its input for a gradient that needs nothing but its shape: with `cater_fine` at batch 16
    that is 211 MiB. On a CPU the library is faster (48×12×64×64, pixels last: 0.40 ms for 2.71).
    """
    return mean_of_blocks(x) if x.is_cuda else F.avg_pool2d(x.flatten(0, -4), 4).unflatten(0, x.shape[:-3])


def mean_of_blocks(x: Tensor) -> Tensor:
    """The same by views."""
    return x.unflatten(-1, (-1, 4)).unflatten(-3, (-1, 4)).mean((-3, -1))


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
    return conv2d(pixels_last(F.pixel_unshuffle(F.pad(x, (5, 3, 5, 3)), 4)), filters, bias)


def upsample_conv(x: Tensor, weight: Tensor, bias: Tensor | None, skip: Tensor | None = None) -> Tensor:
    """A transposed convolution 12×12 with stride 4 and padding 4, on top of nearest ×4 of `skip` [N,out,h,w].

    An output pixel of phase r reaches three inputs along an axis, through taps r + 8, r + 4 and r: sixteen ordinary 3×3
    filters instead of one sparse large one.
    """
    inputs, outputs = weight.shape[:2]
    taps = weight.view(inputs, outputs, 3, 4, 3, 4)  # [in, out, tap row, phase row, tap column, phase column]
    filters = taps.permute(1, 3, 5, 0, 2, 4).reshape(outputs * 16, inputs, 3, 3).flip(2, 3)
    phases = conv2d(x, filters, padding=1).unflatten(1, (outputs, 16))
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
