"""Eligibility traces on a GPU: each of the two passes over them reads and writes every number once.

The torch twins, which these must equal, are `advance_traces` and `collect` in `loci.model.gatelord`. Traces are
[N, gates, H, I+H]: with 16 videos of 10 slots 100 MB a layer, which is why passes count.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

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
COLUMNS = 128
"""Numbers of one row that one program works on."""
ENTRIES = 16
"""Traces that are read at a time while they are summed."""


def available() -> bool:
    """Whether Triton is installed."""
    return triton is not None


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _advance_kernel(  # type: ignore[no-untyped-def]
        old,
        keep,
        local,
        inputs,
        new,
        gates,
        height,
        width,
        BLOCK: tl.constexpr,
    ):
        """new = keep · old + local · input, for one row of one gate of one trace."""
        row = tl.program_id(0).to(tl.int64)  # (n · gates + g) · H + j
        entry = row // (gates * height)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = column < width
        leak = tl.load(keep + entry * height + row % height)
        slope = tl.load(local + row)
        x = tl.load(inputs + entry * width + column, mask=inside)
        before = tl.load(old + row * width + column, mask=inside)
        tl.store(new + row * width + column, leak * before + slope * x, mask=inside)

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
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
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


def _launch(kernel: Any) -> Any:
    """A kernel as torch.compile wants it called; under Triton's interpreter (on a CPU) as it is."""
    return torch.library.wrap_triton(kernel) if torch.cuda.is_available() else kernel


def _advance(old: Tensor, keep: Tensor, local: Tensor, inputs: Tensor) -> Tensor:
    """keep · old + local · input; old [N,gates,H,I+H], keep [N,H], local [N,gates,H], inputs [N,I+H]; float32."""
    old, keep, local, inputs = (t.contiguous() for t in (old, keep, local, inputs))
    entries, gates, height, width = old.shape
    new = torch.empty_like(old)
    grid = (entries * gates * height, triton.cdiv(width, COLUMNS))
    _launch(_advance_kernel)[grid](old, keep, local, inputs, new, gates, height, width, BLOCK=COLUMNS, num_warps=1)
    return new


def _collect(signal: Tensor, traces: Tensor) -> Tensor:
    """Sum over n of signal [N,H] · traces [N,gates,H,I+H]; float32."""
    signal, traces = signal.contiguous(), traces.contiguous()
    entries, gates, height, width = traces.shape
    out = traces.new_empty(gates, height, width)
    grid = (gates * height, triton.cdiv(width, COLUMNS))
    _launch(_collect_kernel)[grid](
        signal, traces, out, gates, height, width, COUNT=entries, BLOCK=COLUMNS, MANY=ENTRIES, num_warps=4
    )
    return out


if triton is not None:
    _advance_op = torch.library.triton_op("loci::advance_traces", _advance, mutates_args=())
    _collect_op = torch.library.triton_op("loci::collect_traces", _collect, mutates_args=())


def advance_traces(traces: T, keep: Tensor, local: Tensor, inputs: Tensor) -> T:
    """The twin's job, in one pass over old and new traces."""
    bias = torch.addcmul(local, keep[:, None, :], traces.bias)
    return traces._replace(weight=_advance_op(traces.weight, keep, local, inputs), bias=bias)


def collect(signal: Tensor, traces: TracesLike) -> tuple[Tensor, Tensor]:
    """The twin's job, in one pass over the traces."""
    return _collect_op(signal, traces.weight), (signal[:, None] * traces.bias).sum(0)
