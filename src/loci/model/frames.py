"""Frames as they come in: checked, and brought to the network's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from loci.errors import UserError

if TYPE_CHECKING:
    from loci.config import ModelConfig
    from loci.model.state import State


def check_frame(frame: Tensor, size: tuple[int, int], batch: int, what: str) -> None:
    """Refuse anything but [B,3,H,W] of uint8, or of floats in [0, 1]."""
    expected = f"expected [{batch},3,{size[0]},{size[1]}], float in [0, 1] or uint8"
    if not isinstance(frame, Tensor):
        raise UserError(f"{what} is a {type(frame).__name__}, not a tensor; {expected}")
    shape = tuple(frame.shape)
    if frame.dim() != 4:
        raise UserError(f"{what} has {frame.dim()} dimensions, shape {shape}; {expected}")
    if shape[1] != 3:
        raise UserError(f"{what} has {shape[1]} channels, shape {shape}; {expected}")
    if shape[2:] != size:
        raise UserError(f"{what} is {shape[2]}x{shape[3]} (height x width); {expected}: resize it")
    if shape[0] != batch:
        raise UserError(f"{what} has {shape[0]} entries, the state {batch}; {expected}")
    if frame.dtype == torch.uint8:
        return
    if not frame.dtype.is_floating_point:
        raise UserError(f"{what} is {frame.dtype}; {expected}")
    low, high = frame.detach().flatten(1).aminmax(dim=1)
    wrong = ~((low >= 0) & (high <= 1))  # NaN compares false, so it is wrong too
    if bool(wrong.any()):
        entry = int(wrong.nonzero()[0, 0])
        came = "a NaN" if bool(frame[entry].isnan().any()) else f"values from {low[entry]:.4g} to {high[entry]:.4g}"
        raise UserError(f"{what} has {came} in batch entry {entry}; {expected}")


def check_state(state: State, config: ModelConfig) -> None:
    """Refuse the state of another network."""
    came = (tuple(state.frame.shape[2:]), state.code.gestalt.shape[2], len(state.cells))
    expected = (config.size, config.gestalt, config.transition.layers)
    if came != expected:
        names = ("frames of {0[0]}x{0[1]}", "a Gestalt of {0}", "{0} recurrent layers")
        wrong = (n.format(c) + ", here " + n.format(e) for n, c, e in zip(names, came, expected, strict=True) if c != e)
        raise UserError(f"the state is that of another network: {'; '.join(wrong)}. Take one from this one's `start`")


def as_frame(frame: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same as floats in [0, 1], where the network is."""
    frame = frame.to(device, non_blocking=True)
    return frame.to(dtype) / 255 if frame.dtype == torch.uint8 else frame.to(dtype)
