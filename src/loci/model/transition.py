"""The transition from t to t+1: attention across slots and a recurrent cell in each, layer after layer.

Every branch hangs on a skip with a learnable scale that starts near zero, so that the transition begins as the
identity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loci.config import ModelConfig
from loci.kernels.precision import exact
from loci.model.blocks import Residual, ResidualLinear
from loci.model.gatelord import CellState, GateL0RD
from loci.model.lstm import LSTM
from loci.model.seed import INDEX_PRIORITY
from loci.model.state import Code

PRIORITY_NOISE = 0.1
TINY = 1e-12


class Noise(NamedTuple):
    """Standard normal numbers for one step."""

    gestalt: Tensor
    """[B,K,D]"""
    priority: Tensor
    """[B,K]"""
    choice: Tensor
    """[B,K]"""


def soft_binary(probability: Tensor, normals: Tensor | None) -> Tensor:
    """p + p(1-p)·N(0,1): noise that only decided values escape, which drives them to 0 or 1."""
    return probability if normals is None else probability + probability * (1 - probability) * normals


class Attention(nn.Module):
    """alpha · MultiheadAttention over the slots."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.alpha = nn.Parameter(torch.tensor([TINY]))
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.project_in.weight)
        nn.init.zeros_(self.project_in.bias)
        nn.init.zeros_(self.project_out.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B,K,C] -> [B,K,C], to be added."""
        query, key, value = self.project_in(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.alpha * self.project_out(mixed)


class Recurrence(nn.Module):
    """alpha · cell, for each slot on its own."""

    def __init__(self, width: int, config: ModelConfig) -> None:
        super().__init__()
        eprop = config.transition.credit == "eprop"
        self.alpha = nn.Parameter(torch.tensor([TINY]))
        self.cell: GateL0RD | LSTM = (
            LSTM(width, width, eprop=eprop)
            if config.transition.cell == "lstm"
            else GateL0RD(width, width, eprop=eprop, sparsity=config.transition.sparsity)
        )

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState, Tensor]:
        """[B,K,C] -> [B,K,C], to be added; the new state; and the share of open gates [B,K].

        An LSTM's are never shut: of it, how much of its memory it lets go.
        """
        y, state, gates = self.cell(x, state)
        opened = (gates > 0).to(gates.dtype) if isinstance(self.cell, GateL0RD) else gates
        return self.alpha * y, state, opened.mean(-1)


class Snitch(nn.Module):
    """The gating network that picks the slot of CATER's snitch (Phi in Eq. 6)."""

    def __init__(self, gestalt: int) -> None:
        super().__init__()
        width = gestalt + 2
        self.layers = nn.Sequential(
            ResidualLinear(width, width), ResidualLinear(width, width), ResidualLinear(width, 1)
        )

    def forward(self, raw: Tensor, normals: Tensor | None) -> Tensor:
        """The transition's raw [sigma, Gestalt, priority], [B,K,D+2] -> which slot, [B,K]."""
        return soft_binary(torch.softmax(self.layers(raw).squeeze(2), 1), normals)


class Transition(nn.Module):
    """The code at t to the code at t+1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        heads = config.transition.heads
        width = heads * config.code
        self.heads = heads
        self.enter = ResidualLinear(config.code, width, scale=TINY)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(config.transition.layers))
        self.recurrence = nn.ModuleList(Recurrence(width, config) for _ in range(config.transition.layers))
        self.leave = ResidualLinear(width, config.code, scale=TINY)
        self.sigma_scale = nn.Parameter(torch.tensor([1e-16]))
        self.bottleneck = Residual(config.gestalt, config.gestalt, 1)
        self.priority_scale = nn.Parameter(torch.ones(1))
        self.index_scale = nn.Parameter(torch.ones(1))
        self.snitch = Snitch(config.gestalt) if config.snitch else None

    def start(self, batch: int, slots: int) -> tuple[CellState, ...]:
        """States of zeros."""
        return tuple(layer.cell.start((batch, slots)) for layer in self.recurrence)  # type: ignore[operator, union-attr]

    def core(self, x: Tensor, cells: tuple[CellState, ...]) -> tuple[Tensor, tuple[CellState, ...], Tensor]:
        """[B,K,D+4] -> the same for t+1; the cells' new states; the share of open gates [B,K]."""
        x = x.repeat(1, 1, self.heads) + self.enter.branch(x)
        states, opened = [], []
        for attention, recurrence, cell in zip(self.attention, self.recurrence, cells, strict=True):
            x = x + attention(x)
            change, state, share = recurrence(x, cell)
            x = x + change
            states.append(state)
            opened.append(share)
        x = x.unflatten(2, (self.heads, -1)).mean(2) + self.leave.branch(x)
        return x, tuple(states), torch.stack(opened).mean(0)

    def binarise(self, gestalt: Tensor, normals: Tensor | None) -> Tensor:
        """The bottleneck: a residual layer, a sigmoid, and noise that only 0 and 1 survive."""
        raw = self.bottleneck(gestalt.flatten(0, 1)).view_as(gestalt)
        return soft_binary(torch.sigmoid(raw), normals)

    def order(self, priority: Tensor, normals: Tensor | None) -> Tensor:
        """z' = 25·((z·K + 0.1·N(0,1))·a + k·b) (Algorithm 2, line 3)."""
        slots = priority.shape[1]
        noisy = priority * slots if normals is None else priority * slots + PRIORITY_NOISE * normals
        index = torch.arange(slots, device=priority.device, dtype=priority.dtype)
        return INDEX_PRIORITY * (noisy * self.priority_scale + index * self.index_scale)

    @exact
    def forward(
        self, percept: Code, cells: tuple[CellState, ...], noise: Noise | None
    ) -> tuple[Code, tuple[CellState, ...], Tensor, Tensor | None]:
        """Return the code predicted for t+1, the cells' states, their gates, and the snitch's slot [B,K]."""
        x = torch.cat((percept.position, percept.gestalt, percept.priority[..., None]), 2)
        x, cells, gates = self.core(x, cells)
        place, raw = x[..., :2], x[..., 2:]
        sigma, gestalt, priority = raw[..., :1], raw[..., 1:-1], raw[..., -1]
        code = Code(
            position=torch.cat((place, sigma * self.sigma_scale), 2),
            gestalt=self.binarise(gestalt, noise and noise.gestalt),
            priority=self.order(priority, noise and noise.priority),
        )
        choice = None if self.snitch is None else self.snitch(raw, noise and noise.choice)
        return code, cells, gates, choice
