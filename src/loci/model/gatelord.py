"""GateL0RD, the recurrent cell of each slot, and credit through time by forward eligibility traces (e-prop).

One call is one step: what goes in (input, hidden state, traces) determines what comes out (output, hidden state,
traces). The traces e = dc/dw follow e_t = (1 - g) e_{t-1} + local derivative (Eq. 17); the gradient of a state weight
is dE/dc times its trace: what autograd gives when the recurrent inputs are detached and the cell's leak path is not.

Weights are stored in pairs: `state` holds the gate and the candidate, `output` the two output factors; each has its
input columns first, then its recurrent ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from loci.kernels import traces as kernels


class Traces(NamedTuple):
    """Eligibility of a cell's state weights, for every batch entry and slot on its own."""

    weight: Tensor
    """[..., gates, H, I+H]"""
    bias: Tensor
    """[..., gates, H]"""


class CellState(NamedTuple):
    """What a recurrent cell carries from one step to the next."""

    hidden: Tensor
    """[..., H], what the recurrent weights read."""
    memory: Tensor
    """[..., H], what leaks: the LSTM's cell. GateL0RD's is its hidden state; there it is empty, [..., 0]."""
    traces: Traces | None
    """None without e-prop, without gradients, and before the first step, when they are zero."""


def advance_traces(traces: Traces | None, keep: Tensor, local: Tensor, inputs: Tensor) -> Traces:
    """e_t = keep · e_{t-1} + local · input; keep [N,H], local [N,gates,H], inputs [N,I+H]."""
    if traces is None:
        return Traces(local[..., None] * inputs[:, None, None, :], local)
    leak = keep[:, None, :]
    weight = leak[..., None] * traces.weight
    return Traces(weight.addcmul_(local[..., None], inputs[:, None, None, :]), torch.addcmul(local, leak, traces.bias))


def collect(signal: Tensor, traces: Traces) -> tuple[Tensor, Tensor]:
    """dE/dw = sum over batch and slots of dE/dc · e; signal [N,H]."""
    rows = signal.T.repeat(traces.bias.shape[1], 1)[:, None]  # [gates·H,1,N]: a product for each row reads traces once
    weight = rows @ traces.weight.flatten(1, 2).transpose(0, 1)
    return weight.view(traces.weight.shape[1:]), (signal[:, None] * traces.bias).sum(0)


def outer(signal: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The ordinary weight and bias gradients of pre = w · input + b; signal [N,gates,H]."""
    return torch.einsum("ngj,ni->gji", signal, inputs), signal.sum(0)


def preactivation(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[N,I+H] with weights [gates,H,I+H] -> [N,gates,H]."""
    return torch.addmm(bias.flatten(), inputs, weight.flatten(0, 1).T).unflatten(1, bias.shape)


class GateL0RDStep(torch.autograd.Function):
    """One step of the cell (Eqs. 10-15) with its gradients written by hand.

    With `eprop` the state weights' gradients come from the traces; without, from this step alone, and the gradient to
    the hidden state is what lets back-propagation through time go on. The sparsity penalty adds lambda · [g > 0] to
    dE/dg of this step, and is in no trace.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        hidden: Tensor,
        state_weight: Tensor,
        state_bias: Tensor,
        output_weight: Tensor,
        output_bias: Tensor,
        trace_weight: Tensor | None,
        trace_bias: Tensor | None,
        eprop: bool,
        sparsity: float,
        fused: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return output, new hidden state, gate, and the new traces (None without e-prop)."""
        before = torch.cat((x, hidden), 1)
        gate_in, candidate_in = preactivation(before, state_weight, state_bias).unbind(1)
        gate, candidate = torch.relu(torch.tanh(gate_in)), torch.tanh(candidate_in)
        new = gate * candidate + (1 - gate) * hidden
        after = torch.cat((x, new), 1)
        content_in, filter_in = preactivation(after, output_weight, output_bias).unbind(1)
        content, window = torch.tanh(content_in), torch.sigmoid(filter_in)

        traces = None
        if eprop:
            gate_slope = torch.where(gate > 0, 1 - gate * gate, 0)
            local = torch.stack((gate_slope * (candidate - hidden), (1 - candidate * candidate) * gate), 1)
            old = None if trace_weight is None or trace_bias is None else Traces(trace_weight, trace_bias)
            if fused and old is not None:
                traces = kernels.advance_traces(old, 1 - gate, local, before)
            else:
                traces = advance_traces(old, 1 - gate, local, before)
        ctx.mark_non_differentiable(gate, *(traces or ()))
        ctx.sparsity = sparsity  # type: ignore[attr-defined]
        ctx.eprop = eprop  # type: ignore[attr-defined]
        ctx.fused = fused  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)  # no zeros in the shape of the traces
        ctx.save_for_backward(
            before, after, gate, candidate, content, window, state_weight, output_weight, *(traces or ())
        )
        return content * window, new, gate, *(traces or (None, None))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, d_output: Tensor | None, d_new: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        """Gradients of input, hidden state and the four weights."""
        before, after, gate, candidate, content, window, state_weight, output_weight, *traces = ctx.saved_tensors  # type: ignore[attr-defined]
        width = gate.shape[1]
        inputs = before.shape[1] - width
        hidden = before[:, inputs:]
        d_output = torch.zeros_like(gate) if d_output is None else d_output

        output_signal = torch.stack(
            (d_output * window * (1 - content * content), d_output * content * window * (1 - window)), 1
        )
        d_after = output_signal.flatten(1) @ output_weight.flatten(0, 1)
        d_cell = d_after[:, inputs:] if d_new is None else d_new + d_after[:, inputs:]
        slope = torch.where(gate > 0, 1 - gate * gate, 0)
        penalty = ctx.sparsity * slope  # type: ignore[attr-defined]
        state_signal = torch.stack(
            (d_cell * (candidate - hidden) * slope + penalty, d_cell * gate * (1 - candidate * candidate)), 1
        )
        d_before = state_signal.flatten(1) @ state_weight.flatten(0, 1)

        if ctx.eprop:  # type: ignore[attr-defined]
            gather = kernels.collect if ctx.fused else collect  # type: ignore[attr-defined]
            d_weight, d_bias = gather(d_cell, Traces(*traces))
            d_weight[0] += penalty.T @ before
            d_bias[0] += penalty.sum(0)
        else:
            d_weight, d_bias = outer(state_signal, before)
        d_x = d_before[:, :inputs] + d_after[:, :inputs]
        d_hidden = d_before[:, inputs:] + d_cell * (1 - gate)
        return d_x, d_hidden, d_weight, d_bias, *outer(output_signal, after), None, None, None, None, None


class GateL0RD(nn.Module):
    """The cell's weights; see `GateL0RDStep` for its equations."""

    def __init__(self, inputs: int, hidden: int, *, eprop: bool = True, sparsity: float = 1e-10) -> None:
        super().__init__()
        self.eprop = eprop
        self.sparsity = sparsity
        self.fused = False  # traces by the kernels of `loci.kernels.traces`; `loci.kernels.fast` sees to it
        self.state_weight = nn.Parameter(paired_weights(inputs, hidden, math.sqrt(3 / hidden)))
        self.state_bias = nn.Parameter(torch.zeros(2, hidden))
        self.output_weight = nn.Parameter(paired_weights(inputs, hidden, math.sqrt(3 / hidden)))
        self.output_bias = nn.Parameter(torch.zeros(2, hidden))

    def start(self, shape: tuple[int, ...]) -> CellState:
        """A state of zeros for slots of this shape."""
        hidden = self.state_bias.new_zeros(*shape, self.state_bias.shape[1])
        return CellState(hidden, hidden[..., :0], None)

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState, Tensor]:
        """[...,I] -> output [...,H], the new state, and how open each gate is [...,H]."""
        eprop = self.eprop and torch.is_grad_enabled()
        hidden = state.hidden.detach() if self.eprop else state.hidden
        old = state.traces if eprop else None
        flat = x.shape[:-1]
        y, new, gate, *traces = GateL0RDStep.apply(
            x.flatten(0, -2),
            hidden.flatten(0, -2),
            self.state_weight,
            self.state_bias,
            self.output_weight,
            self.output_bias,
            None if old is None else old.weight.flatten(0, len(flat) - 1),
            None if old is None else old.bias.flatten(0, len(flat) - 1),
            eprop,
            self.sparsity,
            self.fused,
        )
        kept = Traces(*(t.unflatten(0, flat) for t in traces)) if eprop else None
        return y.unflatten(0, flat), CellState(new.unflatten(0, flat), state.memory, kept), gate.unflatten(0, flat)


def paired_weights(inputs: int, hidden: int, recurrent_bound: float, gates: int = 2) -> Tensor:
    """Weights [gates, H, I+H]: input columns U(±sqrt(6/(I+H))), recurrent ones U(±recurrent_bound)."""
    weight = torch.empty(gates, hidden, inputs + hidden)
    nn.init.uniform_(weight[..., :inputs], -math.sqrt(6 / (inputs + hidden)), math.sqrt(6 / (inputs + hidden)))
    nn.init.uniform_(weight[..., inputs:], -recurrent_bound, recurrent_bound)
    return weight
