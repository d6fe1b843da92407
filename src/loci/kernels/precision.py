"""Where numbers have to be exact although convolutions may be rough.

Inside `torch.autocast(device, torch.bfloat16)` convolutions and the Gestalt's small layers run in bfloat16. What adds
up over a picture or over time does not: positions, the softmax over slots, the transition with its traces, the losses.
Residual streams stay in float32 by themselves, since a sum of both kinds is float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

P = ParamSpec("P")
R = TypeVar("R")


def exact(function: Callable[P, R]) -> Callable[P, R]:
    """The function in the precision of its arguments, also inside an autocast region."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return run


def rough(device: str) -> torch.autocast:
    """Convolutions in bfloat16 from here on, on this kind of device; no cast is kept, for the sake of CUDA graphs."""
    return torch.autocast(device, torch.bfloat16, cache_enabled=False)


def rectified(x: Tensor) -> Tensor:
    """ReLU for a convolution; where those are rough it rounds first: the same numbers, and half as much to remember."""
    if x.dtype == torch.float32 and torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.bfloat16)
    return torch.relu(x)


class SquaredDistance(torch.autograd.Function):
    """Of two pictures, a mean. What it remembers for the first one's gradient may be rounded; the second gets none."""

    @staticmethod
    def forward(ctx: FunctionCtx, one: Tensor, two: Tensor, rounded: bool) -> Tensor:
        """[B,K,C,H,W] each -> [B,K]."""
        difference = one - two
        ctx.save_for_backward(difference.to(torch.bfloat16) if rounded else difference)
        return (difference**2).mean((2, 3, 4))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, signal: Tensor) -> tuple[Tensor, None, None]:
        """2 · difference, for each pixel its share."""
        (difference,) = ctx.saved_tensors  # type: ignore[attr-defined]
        share = 2 / difference[0, 0].numel()
        return share * signal[..., None, None, None] * difference, None, None


def squared_distance(one: Tensor, two: Tensor) -> Tensor:
    """How far two pictures of each slot are apart, [B,K]; where convolutions are rough, half as much to remember."""
    found: Tensor = SquaredDistance.apply(one, two, torch.is_autocast_enabled(one.device.type))
    return found
