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
