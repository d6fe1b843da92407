"""The LSTM in GateL0RD's place, for the ablation; with e-prop too.

Three gates act on the memory c = f·c + i·u (input gate i, forget gate f, candidate u) and have traces; the fourth, the
output gate of h = o·tanh(c), acts on this step alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from loci.model.gatelord import CellState, Traces, advance_traces, collect, outer, paired_weights, preactivation


class LSTMStep(torch.autograd.Function):
    """One step with its gradients written by hand; the same contract as `GateL0RDStep`."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        hidden: Tensor,
        memory: Tensor,
        weight: Tensor,
        bias: Tensor,
        trace_weight: Tensor | None,
        trace_bias: Tensor | None,
        eprop: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return output, new memory, forget gate, and the new traces (None without e-prop)."""
        before = torch.cat((x, hidden), 1)
        entry_in, forget_in, candidate_in, exit_in = preactivation(before, weight, bias).unbind(1)
        entry, forget, exit_ = torch.sigmoid(entry_in), torch.sigmoid(forget_in), torch.sigmoid(exit_in)
        candidate = torch.tanh(candidate_in)
        new = forget * memory + entry * candidate
        local = torch.stack(
            (candidate * entry * (1 - entry), memory * forget * (1 - forget), entry * (1 - candidate * candidate)), 1
        )
        traces = None
        if eprop:
            old = None if trace_weight is None or trace_bias is None else Traces(trace_weight, trace_bias)
            traces = advance_traces(old, forget, local, before)
        ctx.mark_non_differentiable(forget, *(traces or ()))
        ctx.eprop = eprop  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)  # no zeros in the shape of the traces
        ctx.save_for_backward(before, local, forget, exit_, torch.tanh(new), weight, *(traces or ()))
        return exit_ * torch.tanh(new), new, forget, *(traces or (None, None))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, d_output: Tensor | None, d_new: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        """Gradients of input, hidden state, memory, weight and bias."""
        before, local, forget, exit_, squashed, weight, *traces = ctx.saved_tensors  # type: ignore[attr-defined]
        inputs = before.shape[1] - forget.shape[1]
        d_output = torch.zeros_like(forget) if d_output is None else d_output
        d_memory = (0 if d_new is None else d_new) + d_output * exit_ * (1 - squashed * squashed)
        exit_signal = (d_output * squashed * exit_ * (1 - exit_))[:, None]
        signal = torch.cat((d_memory[:, None] * local, exit_signal), 1)
        d_before = signal.flatten(1) @ weight.flatten(0, 1)
        if ctx.eprop:  # type: ignore[attr-defined]
            parts = (collect(d_memory, Traces(*traces)), outer(exit_signal, before))
            d_weight, d_bias = (torch.cat(pair) for pair in zip(*parts, strict=True))
        else:
            d_weight, d_bias = outer(signal, before)
        return d_before[:, :inputs], d_before[:, inputs:], d_memory * forget, d_weight, d_bias, None, None, None


class LSTM(nn.Module):
    """The cell's weights [input, forget, candidate, output gate]; see `LSTMStep`."""

    def __init__(self, inputs: int, hidden: int, *, eprop: bool = True) -> None:
        super().__init__()
        self.eprop = eprop
        self.weight = nn.Parameter(paired_weights(inputs, hidden, math.sqrt(3 / hidden), gates=4))
        self.bias = nn.Parameter(torch.zeros(4, hidden))
        nn.init.ones_(self.bias[1])  # a memory that keeps what it has, as usual for LSTMs

    def start(self, shape: tuple[int, ...]) -> CellState:
        """A state of zeros for slots of this shape."""
        zeros = self.bias.new_zeros(*shape, self.bias.shape[1])
        return CellState(zeros, zeros, None)

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState, Tensor]:
        """[...,I] -> output [...,H], the new state, and how much each memory cell lets go of [...,H]."""
        eprop = self.eprop and torch.is_grad_enabled()
        hidden, memory = (s.detach() if self.eprop else s for s in (state.hidden, state.memory))
        old = state.traces if eprop else None
        flat = x.shape[:-1]
        y, new, forget, *traces = LSTMStep.apply(
            x.flatten(0, -2),
            hidden.flatten(0, -2),
            memory.flatten(0, -2),
            self.weight,
            self.bias,
            None if old is None else old.weight.flatten(0, len(flat) - 1),
            None if old is None else old.bias.flatten(0, len(flat) - 1),
            eprop,
        )
        kept = Traces(*(t.unflatten(0, flat) for t in traces)) if eprop else None
        y = y.unflatten(0, flat)
        return y, CellState(y, new.unflatten(0, flat), kept), 1 - forget.unflatten(0, flat)
