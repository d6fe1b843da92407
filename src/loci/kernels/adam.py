"""Adam for many small parameters in one launch.

torch's fused Adam gives every 65 536 numbers to one block and takes five launches for a network of ours, 50 µs each on
an H200, most of whose multiprocessors then have nothing to do. Here a block has 1 024 numbers, and a table says where
they are. The gradients, which live elsewhere in every recording, are copied together first.

The plain twin is `torch.optim.Adam(fused=True)`, whose state this works on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 1024
"""Numbers that one program updates."""
COLUMNS = 7
"""Of the table: addresses of a parameter, its moments, its count and its rate; where its gradient begins; its size."""


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _update_kernel(  # type: ignore[no-untyped-def]
        table,
        pieces,
        gradients,
        dropped,
        BETA: tl.constexpr,
        BETA_SQUARE: tl.constexpr,
        LOG: tl.constexpr,
        LOG_SQUARE: tl.constexpr,
        EPSILON: tl.constexpr,
        WIDE: tl.constexpr,
        MANY: tl.constexpr,
    ):
        """One piece of one parameter."""
        if tl.load(dropped) == 0:
            row = table + tl.load(pieces + 2 * tl.program_id(0)) * WIDE
            place = tl.load(pieces + 2 * tl.program_id(0) + 1) + tl.arange(0, MANY)
            parameter = tl.load(row).to(tl.pointer_type(tl.float32)) + place
            first = tl.load(row + 1).to(tl.pointer_type(tl.float32)) + place
            second = tl.load(row + 2).to(tl.pointer_type(tl.float32)) + place
            count = tl.load(tl.load(row + 3).to(tl.pointer_type(tl.float32))).to(tl.float64) + 1
            rate = tl.load(tl.load(row + 4).to(tl.pointer_type(tl.float32)))
            inside = place < tl.load(row + 6)
            gradient = tl.load(gradients + tl.load(row + 5) + place, mask=inside, other=0.0)
            mean = tl.load(first, mask=inside, other=0.0)
            mean = BETA * mean + (1 - BETA) * gradient
            square = tl.load(second, mask=inside, other=0.0)
            square = BETA_SQUARE * square + (1 - BETA_SQUARE) * gradient * gradient
            pace = rate / (1 - tl.exp(count * LOG)).to(tl.float32)
            spread = tl.sqrt((1 - tl.exp(count * LOG_SQUARE)).to(tl.float32))
            value = tl.load(parameter, mask=inside, other=0.0)
            tl.store(parameter, value - pace * mean / (tl.sqrt(square) / spread + EPSILON), mask=inside)
            tl.store(first, mean, mask=inside)
            tl.store(second, square, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _count_kernel(table, dropped, rows, WIDE: tl.constexpr, MANY: tl.constexpr):  # type: ignore[no-untyped-def]
        """One update more, for every parameter."""
        row = tl.program_id(0) * MANY + tl.arange(0, MANY)
        inside = row < rows
        count = tl.load(table + row * WIDE + 3, mask=inside, other=0).to(tl.pointer_type(tl.float32))
        tl.store(count, tl.load(count, mask=inside, other=0.0) + 1 - tl.load(dropped), mask=inside)


class Update:
    """One update of several `torch.optim.Adam`s that have made one already, and share their betas and epsilon."""

    def __init__(self, adams: Sequence[torch.optim.Adam], parameters: Sequence[nn.Parameter]) -> None:
        """Note where everything is, of these parameters; it must stay there."""
        self.parameters = list(parameters)
        settings = adams[0].param_groups[0]
        self.betas: tuple[float, float] = settings["betas"]
        self.epsilon: float = settings["eps"]
        rows: list[list[int]] = []
        pieces: list[tuple[int, int]] = []
        begin = 0
        for parameter in self.parameters:
            adam = next(adam for adam in adams if parameter in adam.state)  # `Optimisers.complete` has seen to it
            state = adam.state[parameter]
            tensors = (parameter, state["exp_avg"], state["exp_avg_sq"], state["step"], adam.param_groups[0]["lr"])
            if not all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in tensors):
                raise ValueError("Adam's tensors must be contiguous float32")
            pieces += [(len(rows), start) for start in range(0, parameter.numel(), BLOCK)]
            rows.append([*(tensor.data_ptr() for tensor in tensors), begin, parameter.numel()])
            begin += parameter.numel()
        self.device = self.parameters[0].device
        self.table = torch.tensor(rows, dtype=torch.int64, device=self.device)
        self.pieces = torch.tensor(pieces, dtype=torch.int64, device=self.device)

    def __call__(self, dropped: Tensor) -> None:
        """With the gradients at hand; nothing changes if `dropped`, a number on the device, is not 0."""
        with torch.no_grad():
            gradients = torch.cat([p.grad.reshape(-1) for p in self.parameters if p.grad is not None])
        first, second = self.betas
        _update_kernel[(len(self.pieces),)](
            self.table,
            self.pieces,
            gradients,
            dropped,
            BETA=first,
            BETA_SQUARE=second,
            LOG=math.log(first),
            LOG_SQUARE=math.log(second),
            EPSILON=self.epsilon,
            WIDE=COLUMNS,
            MANY=BLOCK,
            num_warps=4,
        )
        rows = len(self.parameters)
        _count_kernel[(triton.cdiv(rows, BLOCK),)](self.table, dropped, rows, WIDE=COLUMNS, MANY=BLOCK, num_warps=4)
