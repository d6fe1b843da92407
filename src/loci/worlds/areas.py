"""How many pixels masks have, without a large copy of them."""

from __future__ import annotations

import torch
from torch import Tensor

AT_ONCE = 2**24
"""Pixels counted at a time: torch copies what it sums to the sum's own type first, here four bytes for each."""


def area(masks: Tensor) -> Tensor:
    """The pixels [...] int64 of masks [...,H,W] bool."""
    flat = masks.flatten(0, -3)
    count = max(1, AT_ONCE // max(1, masks.shape[-2] * masks.shape[-1]))
    parts = [part.sum((-2, -1), dtype=torch.int32) for part in flat.split(count)]
    return torch.cat(parts).to(torch.int64).view(masks.shape[:-2])
