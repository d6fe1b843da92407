"""The recurrent cells: recorded gradients, and e-prop against autograd with detached recurrent inputs."""

import pytest
import torch

import golden
from loci.model import gatelord
from loci.model.gatelord import GateL0RD
from loci.model.lstm import LSTM

STEPS, BATCH, INPUTS, HIDDEN = 20, 3, 5, 7


def test_recorded_cell():
    tensors, _ = golden.load("eprop_gatel0rd.safetensors")
    cell = GateL0RD(5, 6, sparsity=1e-2)
    pairs = {("state", 0): "g", ("state", 1): "r", ("output", 0): "p", ("output", 1): "o"}
    with torch.no_grad():
        for (kind, part), letter in pairs.items():
            both = torch.cat((tensors[f"weights/w_{letter}x"], tensors[f"weights/w_{letter}h"]), 1)
            getattr(cell, f"{kind}_weight")[part] = both
            getattr(cell, f"{kind}_bias")[part] = tensors[f"weights/b_{letter}"]
    state = cell.start((4,))
    for t in range(12):
        x = tensors["x"][t].requires_grad_()
        y, state, _ = cell(x, state)
        cell.zero_grad()
        (y * tensors["loss_weight"][t]).sum().backward()
        step = f"step{t:02d}"
        torch.testing.assert_close(y, tensors[f"{step}/y"], atol=1e-5, rtol=0)
        torch.testing.assert_close(state.hidden, tensors[f"{step}/hidden"], atol=1e-5, rtol=0)
        torch.testing.assert_close(x.grad, tensors[f"{step}/grad_x"], atol=1e-5, rtol=1e-3)
        for (kind, part), letter in pairs.items():
            weight = getattr(cell, f"{kind}_weight").grad[part]
            theirs = torch.cat((tensors[f"{step}/grad/w_{letter}x"], tensors[f"{step}/grad/w_{letter}h"]), 1)
            assert (weight - theirs).norm() <= 1e-5 * theirs.norm()
            bias, theirs = getattr(cell, f"{kind}_bias").grad[part], tensors[f"{step}/grad/b_{letter}"]
            assert (bias - theirs).norm() <= 1e-5 * theirs.norm()


def plain_gatelord(cell, x, memory, recurrent, sparse=True):
    """The equations as the paper has them, in plain torch; `recurrent` is what the recurrent weights read."""
    size = x.shape[1]
    wg, wr = cell.state_weight
    wp, wo = cell.output_weight
    gate = torch.relu(torch.tanh(x @ wg[:, :size].T + recurrent @ wg[:, size:].T + cell.state_bias[0]))
    candidate = torch.tanh(x @ wr[:, :size].T + recurrent @ wr[:, size:].T + cell.state_bias[1])
    new = gate * candidate + (1 - gate) * memory
    content = torch.tanh(x @ wp[:, :size].T + new @ wp[:, size:].T + cell.output_bias[0])
    window = torch.sigmoid(x @ wo[:, :size].T + new @ wo[:, size:].T + cell.output_bias[1])
    return content * window, new, cell.sparsity * (gate > 0).to(gate) * gate


def plain_lstm(cell, x, memory, recurrent):
    size = x.shape[1]
    entry, forget, candidate, leave = (
        x @ w[:, :size].T + recurrent @ w[:, size:].T + b for w, b in zip(cell.weight, cell.bias, strict=True)
    )
    new = torch.sigmoid(forget) * memory + torch.sigmoid(entry) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(new), new


def gradients(kind, *, eprop):
    """Gradients of a loss at the last step only, by e-prop or by autograd with the recurrent inputs detached."""
    torch.manual_seed(3)
    cell = (GateL0RD(INPUTS, HIDDEN, sparsity=0.0) if kind == "gatelord" else LSTM(INPUTS, HIDDEN)).double()
    xs = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64)
    weight = torch.randn(BATCH, HIDDEN, dtype=torch.float64)
    if eprop:
        state = cell.start((BATCH,))
        for x in xs:
            y, state, _ = cell(x, state)
    else:
        memory = y = torch.zeros(BATCH, HIDDEN, dtype=torch.float64)
        for x in xs:
            if kind == "gatelord":
                y, memory, _ = plain_gatelord(cell, x, memory, memory.detach())
            else:
                y, memory = plain_lstm(cell, x, memory, y.detach())
    (y * weight).sum().backward()
    return [p.grad for p in cell.parameters()]


def worst(kind):
    ours, theirs = gradients(kind, eprop=True), gradients(kind, eprop=False)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("kind", ["gatelord", "lstm"])
def test_eprop_is_autograd_with_detached_recurrent_inputs(kind):
    assert worst(kind) < 1e-10


@pytest.mark.parametrize("kind", ["gatelord", "lstm"])
@pytest.mark.parametrize(
    "broken",
    [
        lambda old, keep, local, inputs: gatelord.Traces(
            local[..., None] * inputs[:, None, None], local
        ),  # forgets all
        lambda old, keep, local, inputs: REAL(old, torch.ones_like(keep), local, inputs),  # never leaks
        lambda old, keep, local, inputs: REAL(old, 1 - keep, local, inputs),  # leaks the wrong way
        lambda old, keep, local, inputs: REAL(old, keep, local.flip(1), inputs),  # gate and candidate swapped
    ],
)
def test_a_broken_trace_is_noticed(kind, broken, monkeypatch):
    for module in ("gatelord", "lstm"):
        monkeypatch.setattr(f"loci.model.{module}.advance_traces", broken)
    assert worst(kind) > 1e-4


REAL = gatelord.advance_traces


def test_one_step_is_ordinary_autograd_with_the_sparsity_penalty():
    torch.manual_seed(0)
    cell = GateL0RD(INPUTS, HIDDEN, eprop=False, sparsity=0.03).double()
    x, h = (torch.randn(BATCH, n, dtype=torch.float64, requires_grad=True) for n in (INPUTS, HIDDEN))
    y, state, _ = cell(x, cell.start((BATCH,))._replace(hidden=h))
    weight, weight_h = torch.randn_like(y), torch.randn_like(y)
    (y * weight + state.hidden * weight_h).sum().backward()
    ours = [x.grad, h.grad, *(p.grad for p in cell.parameters())]
    cell.zero_grad()
    x2, h2 = (t.detach().clone().requires_grad_() for t in (x, h))
    y, new, penalty = plain_gatelord(cell, x2, h2, h2)
    (y * weight + new * weight_h + penalty).sum().backward()
    for a, b in zip(ours, [x2.grad, h2.grad, *(p.grad for p in cell.parameters())], strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("kind", [GateL0RD, LSTM])
def test_back_propagation_through_time_is_autograd(kind):
    torch.manual_seed(1)
    cell = kind(INPUTS, HIDDEN, eprop=False).double()
    if kind is GateL0RD:
        cell.sparsity = 0.0
    xs = torch.randn(6, BATCH, INPUTS, dtype=torch.float64)
    state = cell.start((BATCH,))
    for x in xs:
        y, state, _ = cell(x, state)
    y.square().sum().backward()
    ours = [p.grad.clone() for p in cell.parameters()]
    cell.zero_grad()
    memory = y = torch.zeros(BATCH, HIDDEN, dtype=torch.float64)
    for x in xs:
        y, memory = plain_gatelord(cell, x, memory, memory)[:2] if kind is GateL0RD else plain_lstm(cell, x, memory, y)
    y.square().sum().backward()
    for a, p in zip(ours, cell.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, atol=1e-12, rtol=1e-10)


def test_slots_have_traces_of_their_own():
    cell = GateL0RD(INPUTS, HIDDEN).double()
    x = torch.randn(2, 3, INPUTS, dtype=torch.float64)
    _, state, gates = cell(x, cell.start((2, 3)))
    assert state.traces.weight.shape == (2, 3, 2, HIDDEN, INPUTS + HIDDEN)
    assert gates.shape == (2, 3, HIDDEN)
    _, alone, _ = cell(x[1:, 2:], cell.start((1, 1)))
    torch.testing.assert_close(alone.traces.weight[0, 0], state.traces.weight[1, 2])
