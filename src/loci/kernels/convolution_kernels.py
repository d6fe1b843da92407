"""Triton kernels for 3×3 convolutions of few channels: of maps, and of weights' and biases' gradients.

A weight's gradient is a product [out, pixels] × [pixels, in] for each of nine taps: hardly any output, and a sum over
all pixels of all slots. cuDNN has no good kernel for so few channels (48 to 48, 160 maps of 15×20 on an H200: 105 µs
in TF32, after 15 µs of conversions). Here, pixels are split over the whole chip, the sums of a split stay in registers,
and a second kernel adds up the splits, always in the same order. The bias's gradient falls off on the way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from loci.kernels.launch import launch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

TAPS = 3
PIXELS = 64
"""Pixels that one product adds up."""
PROGRAMS = 264
"""How many pieces of work there should be, with blocks of 64 channels: the two that each multiprocessor of an H100 or
H200 has room for. Smaller blocks leave room for more."""
STAGES = 3
"""Loads under way at once."""
SPLITS = 32
"""Splits that the second kernel adds up at once."""
NUMBERS = 64
"""Numbers that one of its programs writes."""

MAP_PIXELS = 128
"""Pixels of a convolved map that one program works out."""
MAP_STAGES = 4
"""Its loads under way at once."""


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _weight_kernel(  # type: ignore[no-untyped-def]
        x,
        dy,
        out,
        total,
        share,
        Y_HEIGHT: tl.constexpr,
        Y_WIDTH: tl.constexpr,
        X_HEIGHT: tl.constexpr,
        X_WIDTH: tl.constexpr,
        PADDING: tl.constexpr,
        INPUTS: tl.constexpr,
        OUTPUTS: tl.constexpr,
        BLOCK_P: tl.constexpr,
        BLOCK_I: tl.constexpr,
        BLOCK_O: tl.constexpr,
    ):
        """One row of taps, for one share of the pixels and one block of channels; x and dy have channels last."""
        tap_row = tl.program_id(0)
        split = tl.program_id(1)
        input_blocks: tl.constexpr = (INPUTS + BLOCK_I - 1) // BLOCK_I
        i = (tl.program_id(2) % input_blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
        o = (tl.program_id(2) // input_blocks) * BLOCK_O + tl.arange(0, BLOCK_O)
        left = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
        middle = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
        right = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
        signals = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
        first = split * share
        end = tl.minimum(first + share, total)
        for start in range(first, end, BLOCK_P):
            p = start + tl.arange(0, BLOCK_P)
            there = p < end
            column = p % Y_WIDTH
            row = (p // Y_WIDTH) % Y_HEIGHT
            image = p // (Y_WIDTH * Y_HEIGHT)
            signal = tl.load(
                dy + p[:, None] * OUTPUTS + o[None, :], mask=there[:, None] & (o < OUTPUTS)[None, :], other=0.0
            )
            signals += signal.to(tl.float32)
            signal = tl.trans(signal)
            y = row + tap_row - PADDING
            place = (image * X_HEIGHT + y) * X_WIDTH + column - PADDING
            inside = there & (y >= 0) & (y < X_HEIGHT)
            at = column - PADDING
            known = (i < INPUTS)[None, :]
            seen = tl.load(
                x + place[:, None] * INPUTS + i[None, :],
                mask=(inside & (at >= 0) & (at < X_WIDTH))[:, None] & known,
                other=0.0,
            )
            left += tl.dot(signal, seen)
            seen = tl.load(
                x + (place + 1)[:, None] * INPUTS + i[None, :],
                mask=(inside & (at + 1 >= 0) & (at + 1 < X_WIDTH))[:, None] & known,
                other=0.0,
            )
            middle += tl.dot(signal, seen)
            seen = tl.load(
                x + (place + 2)[:, None] * INPUTS + i[None, :],
                mask=(inside & (at + 2 >= 0) & (at + 2 < X_WIDTH))[:, None] & known,
                other=0.0,
            )
            right += tl.dot(signal, seen)
        size: tl.constexpr = OUTPUTS * INPUTS
        base = out + split * (9 * size + OUTPUTS)
        to = base + tap_row * 3 * size + o[:, None] * INPUTS + i[None, :]
        valid = (o < OUTPUTS)[:, None] & (i < INPUTS)[None, :]
        tl.store(to, left, mask=valid)
        tl.store(to + size, middle, mask=valid)
        tl.store(to + 2 * size, right, mask=valid)
        if tap_row == 0:  # by every block of inputs, with the same numbers
            tl.store(base + 9 * size + o, tl.sum(signals, axis=0), mask=o < OUTPUTS)

    @triton.jit  # type: ignore[untyped-decorator]
    def _total_kernel(  # type: ignore[no-untyped-def]
        sums,
        out,
        splits,
        PAIRS: tl.constexpr,
        OUTPUTS: tl.constexpr,
        MANY: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Add up the splits; from the order [taps, out·in] to [out·in, taps], with the bias behind."""
        size: tl.constexpr = 9 * PAIRS + OUTPUTS
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, splits, MANY):
            split = start + tl.arange(0, MANY)
            total += tl.sum(
                tl.load(
                    sums + split[:, None] * size + place[None, :],
                    mask=(split < splits)[:, None] & (place < size)[None, :],
                    other=0.0,
                ),
                axis=0,
            )
        to = tl.where(place < 9 * PAIRS, (place % PAIRS) * 9 + place // PAIRS, place)
        tl.store(out + to, total, mask=place < size)

    @triton.jit  # type: ignore[untyped-decorator]
    def _map_kernel(  # type: ignore[no-untyped-def]
        x,
        filters,
        bias,
        out,
        total,
        Y_HEIGHT: tl.constexpr,
        Y_WIDTH: tl.constexpr,
        X_HEIGHT: tl.constexpr,
        X_WIDTH: tl.constexpr,
        PADDING: tl.constexpr,
        INPUTS: tl.constexpr,
        OUTPUTS: tl.constexpr,
        BIASED: tl.constexpr,
        BLOCK_P: tl.constexpr,
        BLOCK_I: tl.constexpr,
        BLOCK_O: tl.constexpr,
    ):
        """Some pixels and channels of a convolution; x and out have channels last, filters are [3,3,in,out]."""
        p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
        o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
        column = p % Y_WIDTH - PADDING
        row = (p // Y_WIDTH) % Y_HEIGHT - PADDING
        image = p // (Y_WIDTH * Y_HEIGHT)
        input_blocks: tl.constexpr = (INPUTS + BLOCK_I - 1) // BLOCK_I
        found = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
        for part in range(9 * input_blocks):
            tap = part // input_blocks
            i = (part % input_blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
            y = row + tap // 3
            at = column + tap % 3
            inside = (p < total) & (y >= 0) & (y < X_HEIGHT) & (at >= 0) & (at < X_WIDTH)
            seen = tl.load(
                x + ((image * X_HEIGHT + y) * X_WIDTH + at)[:, None] * INPUTS + i[None, :],
                mask=inside[:, None] & (i < INPUTS)[None, :],
                other=0.0,
            )
            taps = tl.load(
                filters + (tap * INPUTS + i)[:, None] * OUTPUTS + o[None, :],
                mask=(i < INPUTS)[:, None] & (o < OUTPUTS)[None, :],
                other=0.0,
            )
            found = tl.dot(seen, taps, found)
        if BIASED:
            found += tl.load(bias + o, mask=o < OUTPUTS, other=0.0)[None, :]
        tl.store(
            out + p[:, None] * OUTPUTS + o[None, :],
            found.to(out.dtype.element_ty),
            mask=(p < total)[:, None] & (o < OUTPUTS)[None, :],
        )


def _block(channels: int) -> int:
    return min(64, max(16, 1 << (channels - 1).bit_length()))


def _gradients(x: Tensor, dy: Tensor, padding: int) -> Tensor:
    """dE/dw [out,in,3,3] and then dE/db [out], flat, in float32; x [N,H,W,in] and dy [N,h,w,out], contiguous."""
    inputs, outputs = x.shape[3], dy.shape[3]
    total = dy.shape[0] * dy.shape[1] * dy.shape[2]
    block_i, block_o = _block(inputs), _block(outputs)
    blocks = -(-inputs // block_i) * -(-outputs // block_o)
    programs = PROGRAMS * 64 // max(block_i, block_o)
    splits = max(1, min(-(-programs // (TAPS * blocks)), -(-total // (2 * PIXELS))))
    share = -(-total // splits)
    size = 9 * outputs * inputs + outputs
    sums = torch.empty(splits, size, dtype=torch.float32, device=x.device)
    launch(_weight_kernel)[(TAPS, splits, blocks)](
        x,
        dy,
        sums,
        total,
        share,
        Y_HEIGHT=dy.shape[1],
        Y_WIDTH=dy.shape[2],
        X_HEIGHT=x.shape[1],
        X_WIDTH=x.shape[2],
        PADDING=padding,
        INPUTS=inputs,
        OUTPUTS=outputs,
        BLOCK_P=PIXELS,
        BLOCK_I=block_i,
        BLOCK_O=block_o,
        num_warps=4,
        num_stages=STAGES,
    )
    out = torch.empty(size, dtype=torch.float32, device=x.device)
    launch(_total_kernel)[(-(-size // NUMBERS),)](
        sums, out, splits, PAIRS=outputs * inputs, OUTPUTS=outputs, MANY=SPLITS, BLOCK=NUMBERS, num_warps=4
    )
    return out


def _maps(x: Tensor, filters: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """x [N,H,W,in] and filters [3,3,in,out], contiguous and of one precision; bias [out] -> [N,h,w,out]."""
    images, height, width, inputs = x.shape
    outputs, shrink = filters.shape[3], 2 - 2 * padding
    out = torch.empty(images, height - shrink, width - shrink, outputs, dtype=x.dtype, device=x.device)
    total = images * out.shape[1] * out.shape[2]
    block_i, block_o = _block(inputs), _block(outputs)
    launch(_map_kernel)[(-(-total // MAP_PIXELS), -(-outputs // block_o))](
        x,
        filters,
        x if bias is None else bias,
        out,
        total,
        Y_HEIGHT=out.shape[1],
        Y_WIDTH=out.shape[2],
        X_HEIGHT=height,
        X_WIDTH=width,
        PADDING=padding,
        INPUTS=inputs,
        OUTPUTS=outputs,
        BIASED=bias is not None,
        BLOCK_P=MAP_PIXELS,
        BLOCK_I=block_i,
        BLOCK_O=block_o,
        num_warps=4,
        num_stages=MAP_STAGES,
    )
    return out


if triton is not None:
    _maps_op = torch.library.triton_op("loci::convolution_maps", _maps, mutates_args=())
    _gradients_op = torch.library.triton_op("loci::convolution_gradients", _gradients, mutates_args=())


def maps(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """`torch.nn.functional.conv2d`, in the precision of x: [N,in,H,W] and [out,in,3,3] -> [N,out,h,w]."""
    filters = weight.to(x.dtype).permute(2, 3, 1, 0).contiguous()
    found: Tensor = _maps_op(x.permute(0, 2, 3, 1).contiguous(), filters, bias, padding)
    return found.permute(0, 3, 1, 2)


def gradients(x: Tensor, dy: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """dE/dw [out,in,3,3] and dE/db [out] in float32 of a convolution with stride 1; x [N,in,H,W], dy [N,out,h,w]."""
    last = (0, 2, 3, 1)
    found = _gradients_op(x.permute(last).contiguous(), dy.permute(last).contiguous(), padding)
    weight, bias = found.split([9 * dy.shape[1] * x.shape[1], dy.shape[1]])
    return weight.view(dy.shape[1], x.shape[1], TAPS, TAPS), bias
