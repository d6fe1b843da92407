"""3×3 convolutions of bfloat16 maps with float32 weights, by whatever is fastest here.

The maps are convolved by cuDNN or by a kernel of our own, whichever a trial of this shape finds faster: of a few shapes
cuDNN has only kernels that turn bfloat16 into float32 and back (48 to 48 channels, 320 maps of 15×20 on an H200: 57 µs,
ours 26; of 160 maps 17 both). Gradients of weights are always worked out by a kernel of our own.

The plain twin is what autograd makes of `torch.nn.functional.conv2d`.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from loci.kernels.convolution_kernels import TAPS, gradients, maps
from loci.kernels.launch import available

log = logging.getLogger(__name__)

ALIGNED = 8
"""Channels come in multiples of this: 16 bytes of bfloat16, which is what libraries and memory want."""
TRIALS, REPEATS = 10, 10
"""Trials of each, of which the fastest counts, and how often it is done in one."""
LAST = torch.channels_last


def layer(x: Tensor, weight: Tensor, padding: int) -> tuple[int, ...]:
    """All that the speed of a convolution depends on: images, channels in, height, width, channels out, padding, GPU.

    The GPU is -1 where our kernels cannot stand for the library's.
    """
    number = (x.device.index or 0) if x.is_cuda and x.dtype == torch.bfloat16 else -1
    return (*x.shape, weight.shape[0], padding, number)


class Convolution(torch.autograd.Function):
    """A 3×3 convolution of maps with float32 weights, which get float32 gradients."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        """[N,in,H,W] -> [N,out,h,w]."""
        rounded = weight.to(x.dtype).contiguous(memory_format=LAST)  # as the library wants it, both ways
        ctx.padding = padding  # type: ignore[attr-defined]
        ctx.biased = bias is not None  # type: ignore[attr-defined]
        ctx.save_for_backward(x, rounded)
        if ours_is_faster(layer(x, weight, padding), back=False):
            return maps(x, rounded, bias, padding)
        return F.conv2d(x, rounded, None if bias is None else bias.to(x.dtype), padding=padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the maps by whatever is faster, of weights and bias by our kernels."""
        x, rounded = ctx.saved_tensors  # type: ignore[attr-defined]
        padding = ctx.padding  # type: ignore[attr-defined]
        dy = dy.contiguous(memory_format=LAST)
        dx = None
        if ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
            if ours_is_faster(layer(x, rounded, padding), back=True):
                dx = maps(dy, turned(rounded), None, 2 - padding)
            else:
                dx = by_library(dy, x, rounded, padding)
        weight, bias = gradients(x, dy, padding)
        return dx, weight, bias if ctx.biased else None, None  # type: ignore[attr-defined]


def turned(weight: Tensor) -> Tensor:
    """The filters that lead back: dE/dx is a convolution of dE/dy with them."""
    return weight.flip(2, 3).transpose(0, 1)


def by_library(dy: Tensor, x: Tensor, weight: Tensor, padding: int) -> Tensor:
    """dE/dx."""
    places, one = [padding, padding], [1, 1]
    dx: Tensor = torch.ops.aten.convolution_backward(
        dy, x, weight, None, one, places, one, False, [0, 0], 1, [True, False, False]
    )[0]
    return dx


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def ours_is_faster(what: tuple[int, ...], back: bool) -> bool:
    """Whether `maps` beats the library at such a `layer`, for the maps themselves or for their gradient."""
    return what[-1] >= 0 and _trial(what, back)


@functools.cache
def _trial(what: tuple[int, ...], back: bool) -> bool:
    """Both are tried, once a process."""
    with torch.no_grad():
        images, inputs, height, width, outputs, padding, number = what
        x, dy, weight = (
            torch.randn(shape, device=f"cuda:{number}", dtype=torch.bfloat16).contiguous(memory_format=LAST)
            for shape in (
                (images, inputs, height, width),
                (images, outputs, height + 2 * padding - 2, width + 2 * padding - 2),
                (outputs, inputs, TAPS, TAPS),
            )
        )
        if back:
            theirs = milliseconds(lambda: by_library(dy, x, weight, padding))
            ours = milliseconds(lambda: maps(dy, turned(weight), None, 2 - padding))
        else:
            theirs = milliseconds(lambda: F.conv2d(x, weight, padding=padding))
            ours = milliseconds(lambda: maps(x, weight, None, padding))
    log.info("%s%s: %.4f ms here, %.4f by the library", what[:-1], " back" if back else "", ours, theirs)
    return ours < theirs


def milliseconds(work: Callable[[], Tensor]) -> float:
    """Of some work on a GPU without what it takes to call it: the fastest of several recordings' replays."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(REPEATS):
            work()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(TRIALS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return min(begin.elapsed_time(end) for begin, end in itertools.pairwise(marks)) / REPEATS


def precision(x: Tensor, weight: Tensor) -> torch.dtype | None:
    """In which precision our kernels would do this convolution; None where they are not for it.

    They are for learning on a GPU where float32 need not be more than the ten bits of TF32.
    """
    learning = x.is_cuda and torch.is_grad_enabled() and weight.shape[2:] == (TAPS, TAPS)
    if not available() or not learning:
        return None
    if torch.is_autocast_enabled("cuda"):
        return torch.bfloat16
    return torch.float32 if x.dtype == torch.float32 and torch.backends.cudnn.allow_tf32 else None


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None, padding: Any = 0) -> Tensor:
    """`torch.nn.functional.conv2d` with stride 1."""
    dtype = precision(x, weight)
    if dtype is None:
        return F.conv2d(x, weight, bias, padding=padding)
    outputs, inputs = weight.shape[:2]
    more_out, more_in = -outputs % ALIGNED, -inputs % ALIGNED
    if more_in:
        x = F.pad(x, (0, 0, 0, 0, 0, more_in))
    if more_in or more_out:
        weight = F.pad(weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
        bias = None if bias is None else F.pad(bias, (0, more_out))
    y: Tensor = Convolution.apply(x.to(dtype), weight, bias, padding if isinstance(padding, int) else padding[0])
    return y[:, :outputs] if more_out else y
