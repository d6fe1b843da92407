"""3×3 convolutions whose weights' gradients are worked out by a kernel of our own.

A weight's gradient is a product [out, pixels] × [pixels, in] for each of nine taps: hardly any output, and a sum over
all pixels of all slots. cuDNN has no good kernel for so few channels (48 to 48, 160 maps of 15×20 on an H200: 105 µs
in TF32, after 15 µs of conversions). Here, pixels are split over the whole chip, the sums of a split stay in registers,
and a second pass adds up the splits, always in the same order.

The plain twin is what autograd makes of `torch.nn.functional.conv2d`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

TAPS = 3
PIXELS = 64
"""Pixels that one product adds up."""
PROGRAMS = 264
"""How many pieces of work there should be: two for each multiprocessor of an H100 or H200."""


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _weight_kernel(  # type: ignore[no-untyped-def]
        x,
        dy,
        out,
        total,
        share,
        y_height,
        y_width,
        x_height,
        x_width,
        padding,
        inputs,
        outputs,
        ROUNDS: tl.constexpr,
        BLOCK_P: tl.constexpr,
        BLOCK_I: tl.constexpr,
        BLOCK_O: tl.constexpr,
    ):
        """One row of taps, for one share of the pixels and one block of channels; x and dy have channels last."""
        tap_row = tl.program_id(0)
        split = tl.program_id(1)
        input_blocks = tl.cdiv(inputs, BLOCK_I)
        i = (tl.program_id(2) % input_blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
        o = (tl.program_id(2) // input_blocks) * BLOCK_O + tl.arange(0, BLOCK_O)
        left = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
        middle = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
        right = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
        first = split * share
        end = tl.minimum(first + share, total)
        for number in range(ROUNDS):
            p = first + number * BLOCK_P + tl.arange(0, BLOCK_P)
            there = p < end
            column = p % y_width
            row = (p // y_width) % y_height
            image = p // (y_width * y_height)
            signal = tl.load(
                dy + p[:, None] * outputs + o[None, :], mask=there[:, None] & (o < outputs)[None, :], other=0.0
            )
            signal = tl.trans(signal)
            y = row + tap_row - padding
            place = (image * x_height + y) * x_width + column - padding
            inside = there & (y >= 0) & (y < x_height)
            at = column - padding
            known = (i < inputs)[None, :]
            seen = tl.load(
                x + place[:, None] * inputs + i[None, :],
                mask=(inside & (at >= 0) & (at < x_width))[:, None] & known,
                other=0.0,
            )
            left += tl.dot(signal, seen)
            seen = tl.load(
                x + (place + 1)[:, None] * inputs + i[None, :],
                mask=(inside & (at + 1 >= 0) & (at + 1 < x_width))[:, None] & known,
                other=0.0,
            )
            middle += tl.dot(signal, seen)
            seen = tl.load(
                x + (place + 2)[:, None] * inputs + i[None, :],
                mask=(inside & (at + 2 >= 0) & (at + 2 < x_width))[:, None] & known,
                other=0.0,
            )
            right += tl.dot(signal, seen)
        size = outputs * inputs
        to = out + (split * 9 + tap_row * 3) * size + o[:, None] * inputs + i[None, :]
        valid = (o < outputs)[:, None] & (i < inputs)[None, :]
        tl.store(to, left, mask=valid)
        tl.store(to + size, middle, mask=valid)
        tl.store(to + 2 * size, right, mask=valid)


def _block(channels: int) -> int:
    return min(64, max(16, 1 << (channels - 1).bit_length()))


def _partial(x: Tensor, dy: Tensor, padding: int) -> Tensor:
    """Sums over shares of the pixels, [splits,3,3,out,in]; x [N,H,W,in] and dy [N,h,w,out], contiguous."""
    inputs, outputs = x.shape[3], dy.shape[3]
    total = dy.shape[0] * dy.shape[1] * dy.shape[2]
    block_i, block_o = _block(inputs), _block(outputs)
    blocks = -(-inputs // block_i) * -(-outputs // block_o)
    splits = max(1, min(-(-PROGRAMS // (TAPS * blocks)), -(-total // (2 * PIXELS))))
    share = -(-total // splits)
    out = torch.empty(splits, TAPS, TAPS, outputs, inputs, dtype=torch.float32, device=x.device)
    kernel = torch.library.wrap_triton(_weight_kernel) if x.is_cuda else _weight_kernel
    kernel[(TAPS, splits, blocks)](
        x,
        dy,
        out,
        total,
        share,
        dy.shape[1],
        dy.shape[2],
        x.shape[1],
        x.shape[2],
        padding,
        inputs,
        outputs,
        ROUNDS=-(-share // PIXELS),
        BLOCK_P=PIXELS,
        BLOCK_I=block_i,
        BLOCK_O=block_o,
        num_warps=4,
        num_stages=3,
    )
    return out


if triton is not None:
    _partial_op = torch.library.triton_op("loci::convolution_weight_sums", _partial, mutates_args=())


def weight_gradient(x: Tensor, dy: Tensor, padding: int) -> Tensor:
    """dE/dw [out,in,3,3] in float32 of a convolution with stride 1; x [N,in,H,W], dy [N,out,h,w]."""
    last = (0, 2, 3, 1)
    sums = _partial_op(x.permute(last).contiguous(), dy.permute(last).contiguous(), padding)
    return sums.sum(0).permute(2, 3, 0, 1).contiguous()


class Convolution(torch.autograd.Function):
    """A 3×3 convolution of bfloat16 maps with float32 weights, which get float32 gradients."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        """[N,in,H,W] -> [N,out,h,w]."""
        rounded = weight.to(x.dtype)
        ctx.padding = padding  # type: ignore[attr-defined]
        ctx.biased = bias is not None  # type: ignore[attr-defined]
        ctx.save_for_backward(x, rounded)
        return F.conv2d(x, rounded, None if bias is None else bias.to(x.dtype), padding=padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the maps by the library, of the weights by the kernel."""
        x, rounded = ctx.saved_tensors  # type: ignore[attr-defined]
        padding = [ctx.padding, ctx.padding]  # type: ignore[attr-defined]
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = None
        if ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
            dx, _, _ = torch.ops.aten.convolution_backward(
                dy, x, rounded, None, [1, 1], padding, [1, 1], False, [0, 0], 1, [True, False, False]
            )
        bias = dy.sum((0, 2, 3), dtype=torch.float32) if ctx.biased else None  # type: ignore[attr-defined]
        return dx, weight_gradient(x, dy, ctx.padding), bias, None  # type: ignore[attr-defined]


def applies(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel is for this convolution: on a GPU, in bfloat16, while learning."""
    return (
        triton is not None
        and x.is_cuda
        and weight.shape[2:] == (TAPS, TAPS)
        and torch.is_grad_enabled()
        and torch.is_autocast_enabled("cuda")
    )


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None, padding: Any = 0) -> Tensor:
    """`torch.nn.functional.conv2d` with stride 1."""
    if not applies(x, weight):
        return F.conv2d(x, weight, bias, padding=padding)
    return Convolution.apply(x.to(torch.bfloat16), weight, bias, padding if isinstance(padding, int) else padding[0])
