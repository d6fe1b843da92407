"""Eligibility traces on a GPU: each of the two passes over them reads and writes every number once.

The torch twins, which these must equal, are `advance_traces` and `collect` in `loci.model.gatelord`. Traces are
[N, gates, H, I+H]: with 16 videos of 10 slots 100 MB a layer, which is why passes count.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from loci.kernels.launch import launch

try:
    import triton
    import triton.language as tl
except ImportError:  # there is none for CPUs; the twins do the work there
    triton = None


class TracesLike(Protocol):
    """`loci.model.gatelord.Traces`, which imports this module."""

    @property
    def weight(self) -> Tensor:
        """[N,gates,H,I+H]."""
        ...

    @property
    def bias(self) -> Tensor:
        """[N,gates,H]."""
        ...

    def _replace(self, *, weight: Tensor, bias: Tensor) -> Self: ...


T = TypeVar("T", bound=TracesLike)
NUMBERS = 4096
"""How many of the traces' numbers a program has in flight, in whole rows."""


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _advance_kernel(  # type: ignore[no-untyped-def]
        old,
        keep,
        local,
        inputs,
        new,
        rows,
        gates,
        height,
        width,
        ROWS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """new = keep · old + local · input, for some rows; a row is one gate of one trace."""
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)  # (n · gates + g) · H + j
        here = row < rows
        entry = row // (gates * height)
        column = tl.arange(0, BLOCK)
        inside = here[:, None] & (column < width)[None, :]
        leak = tl.load(keep + entry * height + row % height, mask=here, other=0.0)
        slope = tl.load(local + row, mask=here, other=0.0)
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        x = tl.load(inputs + entry[:, None] * width + column[None, :], mask=inside, other=0.0)
        before = tl.load(old + place, mask=inside, other=0.0)
        tl.store(new + place, leak[:, None] * before + slope[:, None] * x, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _collect_kernel(  # type: ignore[no-untyped-def]
        signal,
        traces,
        out,
        gates,
        height,
        width,
        COUNT: tl.constexpr,
        BLOCK: tl.constexpr,
        MANY: tl.constexpr,
    ):
        """out = sum over n of signal · trace, for one row of one gate; n in order, so the same in every run."""
        row = tl.program_id(0).to(tl.int64)  # g · H + j
        column = tl.arange(0, BLOCK)
        inside = column < width
        total = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, COUNT, MANY):
            entry = (first + tl.arange(0, MANY)).to(tl.int64)
            there = entry < COUNT
            weight = tl.load(signal + entry * height + row % height, mask=there, other=0.0)
            place = traces + (entry[:, None] * gates * height + row) * width + column[None, :]
            trace = tl.load(place, mask=there[:, None] & inside[None, :], other=0.0)
            total += tl.sum(weight[:, None] * trace, 0)
        tl.store(out + row * width + column, total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _keep_kernel(  # type: ignore[no-untyped-def]
        kept,
        after,
        into,
        count,
        BLOCK: tl.constexpr,
    ):
        """into = after, if kept; else nothing is read."""
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = (place < count) & (tl.load(kept) != 0)
        tl.store(into + place, tl.load(after + place, mask=inside), mask=inside)


def _advance(old: Tensor, keep: Tensor, local: Tensor, inputs: Tensor) -> Tensor:
    """keep · old + local · input; old [N,gates,H,I+H], keep [N,H], local [N,gates,H], inputs [N,I+H]; float32."""
    old, keep, local, inputs = (t.contiguous() for t in (old, keep, local, inputs))
    entries, gates, height, width = old.shape
    new = torch.empty_like(old)
    rows, block = entries * gates * height, triton.next_power_of_2(width)
    many = max(1, NUMBERS // block)
    launch(_advance_kernel)[(triton.cdiv(rows, many),)](
        old, keep, local, inputs, new, rows, gates, height, width, ROWS=many, BLOCK=block, num_warps=4
    )
    return new


def _collect(signal: Tensor, traces: Tensor) -> Tensor:
    """Sum over n of signal [N,H] · traces [N,gates,H,I+H]; float32."""
    signal, traces = signal.contiguous(), traces.contiguous()
    entries, gates, height, width = traces.shape
    out = traces.new_empty(gates, height, width)
    block = triton.next_power_of_2(width)
    launch(_collect_kernel)[(gates * height,)](
        signal,
        traces,
        out,
        gates,
        height,
        width,
        COUNT=entries,
        BLOCK=block,
        MANY=max(1, NUMBERS // block),
        num_warps=8,
    )
    return out


if triton is not None:
    _advance_op = torch.library.triton_op("loci::advance_traces", _advance, mutates_args=())
    _collect_op = torch.library.triton_op("loci::collect_traces", _collect, mutates_args=())


def fits(after: Tensor, into: Tensor) -> bool:
    """Whether `keep_if` is for these: numbers on a GPU, one beside the other in the same order."""
    alike = after.dtype == into.dtype == torch.float32 and after.stride() == into.stride()
    return triton is not None and into.is_cuda and alike and after.is_contiguous()


def keep_if(kept: Tensor, after: Tensor, into: Tensor) -> None:
    """`into` becomes `after` if kept, a number on the device; both are float32 and contiguous."""
    _keep_kernel[(triton.cdiv(into.numel(), NUMBERS),)](kept, after, into, into.numel(), BLOCK=NUMBERS, num_warps=8)


def advance_traces(traces: T, keep: Tensor, local: Tensor, inputs: Tensor) -> T:
    """The twin's job, in one pass over old and new traces."""
    bias = torch.addcmul(local, keep[:, None, :], traces.bias)
    return traces._replace(weight=_advance_op(traces.weight, keep, local, inputs), bias=bias)


def collect(signal: Tensor, traces: TracesLike) -> tuple[Tensor, Tensor]:
    """The twin's job, in one pass over the traces."""
    return _collect_op(signal, traces.weight), (signal[:, None] * traces.bias).sum(0)
