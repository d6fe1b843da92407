"""The kinds of fish in the aquarium: a shape, a pattern and colours each."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

N = TypeVar("N")
C = TypeVar("C")


class Look(NamedTuple, Generic[N, C]):
    """What a fish looks like, in numbers N and colours C; lengths are in half its body's length.

    Attributes:
        height: Half the body's greatest height.
        nose: How blunt the head is: 0.4 blunt, 1 pointed.
        peduncle: Half the height where the tail begins.
        tail: Half the tail fin's height.
        fork: How deeply it is forked.
        sail: Height of the back fin.
        keel: Height of the belly fin.
        bands: Number of upright bands from nose to tail.
        banded: How strongly they show, 0 to 1.
        stripe: Where a lengthwise stripe runs, from -1 at the belly to 1 at the back.
        striped: How strongly it shows.
        spotted: How strongly spots show.
        back: Colour of the back.
        belly: Colour of the belly.
        mark: Colour of bands, stripe and spots.
        fin: Colour of the fins.
    """

    height: N
    nose: N
    peduncle: N
    tail: N
    fork: N
    sail: N
    keel: N
    bands: N
    banded: N
    stripe: N
    striped: N
    spotted: N
    back: C
    belly: C
    mark: C
    fin: C


Species = Look[float, tuple[float, float, float]]
Looks = Look[Tensor, Tensor]


SPECIES: dict[str, Species] = {
    "tetra": Species(0.29, 0.6, 0.08, 0.26, 0.5, 0.16, 0.14, 0, 0, 0.25, 1.0, 0,
                     (0.25, 0.28, 0.35), (0.85, 0.25, 0.20), (0.20, 0.85, 0.95), (0.75, 0.60, 0.60)),
    "danio": Species(0.25, 0.8, 0.08, 0.28, 0.4, 0.12, 0.14, 0, 0, 0.05, 0.9, 0,
                     (0.70, 0.62, 0.35), (0.90, 0.88, 0.75), (0.15, 0.20, 0.50), (0.85, 0.80, 0.55)),
    "clownfish": Species(0.38, 0.5, 0.14, 0.30, 0.0, 0.16, 0.12, 2.6, 1.0, 0, 0, 0,
                         (0.95, 0.42, 0.05), (1.00, 0.55, 0.12), (0.97, 0.97, 0.95), (0.95, 0.50, 0.08)),
    "angelfish": Species(0.62, 0.9, 0.12, 0.34, 0.2, 0.75, 0.70, 3.2, 0.9, 0, 0, 0,
                         (0.80, 0.78, 0.62), (0.95, 0.94, 0.88), (0.10, 0.10, 0.14), (0.75, 0.75, 0.70)),
    "tang": Species(0.48, 0.7, 0.09, 0.36, 0.3, 0.20, 0.18, 0, 0, 0.35, 0.8, 0,
                    (0.10, 0.25, 0.85), (0.20, 0.45, 0.95), (0.04, 0.06, 0.20), (0.98, 0.85, 0.15)),
    "goldfish": Species(0.42, 0.45, 0.12, 0.55, 0.8, 0.30, 0.22, 0, 0, 0, 0, 0.15,
                        (0.98, 0.50, 0.10), (1.00, 0.82, 0.55), (1.00, 0.92, 0.80), (1.00, 0.60, 0.25)),
    "puffer": Species(0.46, 0.4, 0.13, 0.22, 0.0, 0.10, 0.08, 0, 0, 0, 0, 0.9,
                      (0.62, 0.66, 0.25), (0.96, 0.95, 0.86), (0.20, 0.16, 0.08), (0.80, 0.78, 0.40)),
    "discus": Species(0.66, 0.45, 0.14, 0.30, 0.1, 0.26, 0.24, 5.0, 0.6, 0, 0, 0,
                      (0.85, 0.35, 0.20), (0.95, 0.55, 0.30), (0.15, 0.55, 0.75), (0.80, 0.30, 0.20)),
}  # fmt: skip

SCHOOLING = (0, 1)
"""Which of them keep together in a school; the others swim alone."""


def looks(species: Tensor) -> Looks:
    """What fish of these species look like: numbers of the same shape, colours [..., 3]."""
    columns = zip(*SPECIES.values(), strict=True)
    return Looks(*(torch.tensor(column, dtype=torch.float32, device=species.device)[species] for column in columns))
