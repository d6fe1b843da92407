"""How many of a Gestalt's numbers carry information, and about what."""

from __future__ import annotations

import torch
from torch import Tensor

from loci.evaluate.report import Entry, Table

RARE = 0.02
"""A bit that is the same in all but such a share of the codes says nothing."""
TELLS = 0.1
"""Bits of information about what an object is, from which on a number of its code counts as telling it."""


def entropy(share: Tensor) -> Tensor:
    """Of a bit that is 1 in such a share of all cases, in bits."""
    return -(share.xlogy(share) + (1 - share).xlogy(1 - share)) / torch.log(torch.tensor(2.0, dtype=share.dtype))


def information(bits: Tensor, kind: Tensor) -> Tensor:
    """What each bit [n,D] says of a kind [n]: its entropy less what is left of it when the kind is known, in bits."""
    bits = bits.double()
    left = torch.zeros_like(bits[0])
    for number in kind.unique():
        inside = kind == number
        left += inside.double().mean() * entropy(bits[inside].mean(0))
    return (entropy(bits.mean(0)) - left).clamp(min=0)  # rounding can leave it just below


def axes(codes: Tensor, share: float = 0.9) -> int:
    """How many directions hold this share of the codes' variance."""
    centred = codes.double() - codes.double().mean(0)
    variance = torch.linalg.svdvals(centred).square()
    if not variance.sum():
        return 0
    return int((variance.cumsum(0) / variance.sum() < share - 1e-12).sum()) + 1


def table(codes: Tensor, kinds: dict[str, Tensor]) -> Table:
    """Of codes [n,D] of visible objects, and what the objects are [n] (-1 where unknown) by name."""
    bits = codes > 0.5
    share = bits.double().mean(0)
    rows: list[tuple[Entry, ...]] = [
        ("numbers in a code", codes.shape[1]),
        ("within 0.1 of 0 or 1 (%)", 100 * ((codes - codes.round()).abs() < 0.1).double().mean().item()),
        (f"carry information: on in {RARE:.0%} to {1 - RARE:.0%} of the codes", _count(share, RARE)),
        ("sum of their entropies (bits)", entropy(share).sum().item()),
        ("directions with 90% of the variance", axes(codes)),
        (f"different codes among {len(codes)}", len(bits.unique(dim=0))),
    ]
    for name, kind in kinds.items():
        known = kind >= 0
        if len(kind[known].unique()) > 1:
            said = information(bits[known], kind[known])
            rows.append((f"tell {TELLS} bits or more of {name}", int((said >= TELLS).sum())))
            rows.append((f"most that one tells of {name} (bits)", said.max().item()))
    note = "Of rounded codes, each number by itself; a code's numbers may repeat one another."
    return Table("What a Gestalt's numbers carry", ("measure", "value"), tuple(rows), note)


def _count(share: Tensor, rare: float) -> int:
    return int(((share >= rare) & (share <= 1 - rare)).sum())
