"""What the model carries from one frame to the next, and what it says about each.

B batch, K slots, D Gestalt, H W pixels. Every tensor has the batch first, so that entries can be gathered, dropped or
joined between two steps. Slots keep their own axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from loci.errors import UserError
from loci.model.gatelord import CellState

N = TypeVar("N")


class Code(NamedTuple):
    """What and where of every slot."""

    position: Tensor
    """[B,K,3] row, column, sigma."""
    gestalt: Tensor
    """[B,K,D] what it looks like; near 0 or 1 behind the bottleneck."""
    priority: Tensor
    """[B,K] who is in front."""


class Layers(NamedTuple):
    """What the decoder makes of a code, before the slots compete."""

    mask_logits: Tensor
    """[B,K,H,W]"""
    colour_logits: Tensor
    """[B,K,3,H,W]"""


class State(NamedTuple):
    """Everything the next step needs; detached, but for the cells under back-propagation through time."""

    code: Code
    """The prediction for the next frame."""
    frame: Tensor
    """[B,3,H,W] the next frame as predicted."""
    masks: Tensor
    """[B,K+1,H,W] who is where in it, the background last."""
    background: Tensor
    """[B,3,H,W] what the scene looks like without objects."""
    cells: tuple[CellState, ...]
    """Of each recurrent layer, [B,K,...]."""
    claimed: Tensor
    """[B,K] the largest mask value since the sequence began."""
    seen: Tensor
    """[B,K] the same since the last bootstrap step."""
    visible: Tensor
    """[B,K] the largest mask value now."""
    average: Code
    """Gestalt and sigma averaged around the last time a slot was visible (Eq. 3)."""
    time: Tensor
    """[B] steps since the start."""
    key: Tensor
    """[B] all of its randomness."""
    fresh: bool
    """Whether some entry has not seen a frame yet (known without asking the device)."""

    def detach(self) -> State:
        """Cut the graph."""
        return tree_map(lambda x: x.detach(), self)

    def gather(self, entries: Tensor | Sequence[int]) -> State:
        """Some of the batch, in this order."""
        index = torch.as_tensor(entries, device=self.time.device)
        index = index if index.numel() else index.long()
        return tree_map(lambda x: x[index], self)

    @staticmethod
    def join(states: Sequence[State]) -> State:
        """Several batches as one; traces that one of them lacks are zero."""
        kinds = {(state.slots(), state.code.gestalt.shape[2], *state.frame.shape[2:]) for state in states}
        if len(kinds) != 1:
            told = ", ".join(f"{k} slots, Gestalt {d}, frames {h}x{w}" for k, d, h, w in sorted(kinds)) or "none"
            raise UserError(f"states to join must be of one kind; these are: {told}")
        return _join(list(states))

    def slots(self) -> int:
        """How many there are."""
        return self.claimed.shape[1]


class StepOutput(NamedTuple):
    """What one step says: the frame as it was perceived, and the next one as predicted."""

    frame: Tensor
    """[B,3,H,W] the next frame, predicted."""
    masks: Tensor
    """[B,K+1,H,W] softmax over slots and background, the background last."""
    colours: Tensor
    """[B,K,3,H,W] what each slot paints."""
    code: Code
    """Predicted for the next frame."""
    percept: Code
    """The encoder's view of this frame, before the transition."""
    searched: Code
    """The slots that entered the step, after search."""
    view_logits: Tensor
    """[B,K,3,H,W] how they were painted for the encoder (before the sigmoid)."""
    uncovered: Tensor | None
    """[B,K,3,H,W] how the predicted slots look without depth order (before the sigmoid), for the loss."""
    visible: Tensor
    """[B,K] the largest value of each slot's mask."""
    claimed: Tensor
    """[B,K] bool, whether it has ever exceeded the threshold."""
    error: Tensor
    """[B,1,H,W] what the prediction missed."""
    gates: Tensor
    """[B,K] the share of open gates in the recurrent cells; of LSTMs, how much of their memory they let go."""
    snitch: Tensor | None
    """[B,2] row and column of the snitch, where the model has the head."""
    choice: Tensor | None
    """[B,K] which slot holds it."""


def tree_map(change: Callable[[Tensor], Tensor], tree: N) -> N:
    """The same tree with every tensor changed."""
    if isinstance(tree, Tensor):
        return cast(N, change(tree))
    if isinstance(tree, tuple):
        items = [tree_map(change, item) for item in tree]
        rebuilt: Any = type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
        return cast(N, rebuilt)
    return tree


def without(condition: bool | Tensor, value: Tensor) -> Tensor:
    """Zero if so, else the value."""
    if isinstance(condition, Tensor):
        return torch.where(condition, 0, value)
    return torch.zeros_like(value) if condition else value


def stack(outputs: Sequence[N], dim: int = 1) -> N:
    """One tree with a new axis from many of one shape."""
    first: Any = outputs[0]
    if isinstance(first, Tensor):
        return torch.stack(list(outputs), dim)  # type: ignore[return-value, arg-type]
    if isinstance(first, tuple):
        items = [stack(parts, dim) for parts in zip(*outputs, strict=True)]  # type: ignore[call-overload]
        stacked: Any = type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
        return cast(N, stacked)
    return cast(N, first)


def _join(trees: list[Any]) -> Any:
    first = next((tree for tree in trees if tree is not None), None)
    if isinstance(first, bool):
        return any(trees)
    if isinstance(first, CellState):
        known = next((tree.traces for tree in trees if tree.traces is not None), None)
        if known is not None:
            trees = [tree if tree.traces is not None else _with_zero_traces(tree, known) for tree in trees]
    if isinstance(first, Tensor):
        return torch.cat(trees)
    if isinstance(first, tuple):
        items = [_join(list(parts)) for parts in zip(*trees, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    return first


def _with_zero_traces(cell: CellState, like: Any) -> CellState:
    batch = cell.hidden.shape[0]
    return cell._replace(traces=tree_map(lambda x: x.new_zeros(batch, *x.shape[1:]), like))
