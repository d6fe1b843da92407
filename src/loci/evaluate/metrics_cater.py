"""CATER's snitch localisation: in which of 36 cells of the floor is it at the end, and how far off was the answer.

Scores are per clip, so that means, deviations and curves come from the same numbers. All distances count cells, whose
side is one unit of the world.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loci.data.cater_geometry import CELLS, LAST, REACH, cell_centres, snitch_class, unproject


class CaterScores(NamedTuple):
    """One number per clip, [...].

    Attributes:
        top1: 1 where the best answer is the right cell.
        top5: 1 where the right cell is among the five best.
        l1: rows plus columns between the best answer and the right cell, in whole cells.
        l2: distance in the plane between the answer and the truth; NaN for answers that are cells.
    """

    top1: Tensor
    top5: Tensor
    l1: Tensor
    l2: Tensor


def _score(ranking: Tensor, label: Tensor, l2: Tensor) -> CaterScores:
    """Scores of cells [...,36] where more is better."""
    best = ranking.topk(5, -1).indices
    hit = best == label[..., None]
    rows = (best[..., 0].div(CELLS, rounding_mode="floor") - label.div(CELLS, rounding_mode="floor")).abs()
    columns = (best[..., 0] % CELLS - label % CELLS).abs()
    return CaterScores(hit[..., 0].to(l2), hit.any(-1).to(l2), (rows + columns).to(l2), l2)


def score_place(place: Tensor, truth: Tensor) -> CaterScores:
    """Score places in the world.

    A place's five best cells are its own and then those whose centres are nearest. A place beyond the grid counts for
    the cell at the border; its distance is that of the place as said.

    Args:
        place: [...,2 or more], x and y said.
        truth: [...,2 or more], x and y of the snitch.
    """
    place, inside = place[..., :2], place[..., :2].clamp(-REACH, LAST)
    label = snitch_class(truth)
    nearness = -(inside[..., None, :] - cell_centres(place.device).to(place)).norm(dim=-1)
    # On a border between cells two centres are equally near: the cell that holds the place comes first.
    nearness = nearness.scatter(-1, snitch_class(inside)[..., None], 1.0)
    return _score(nearness, label, (place - truth[..., :2]).norm(dim=-1))


def score_screen(screen: Tensor, truth: Tensor) -> CaterScores:
    """Score positions (row, column) as CATER's camera has them, taken to lie at the height of a resting snitch."""
    return score_place(unproject(screen, clip=False), truth)


def score_classes(scores: Tensor, label: Tensor) -> CaterScores:
    """Score a classifier's scores [...,36] against classes [...]."""
    if scores.shape[-1] != CELLS**2:
        raise ValueError(f"CATER has {CELLS**2} classes, got scores of shape {tuple(scores.shape)}")
    return _score(scores, label, torch.full_like(label, torch.nan, dtype=torch.float32))


def mean_scores(scores: CaterScores) -> dict[str, float]:
    """The four numbers of the paper's table; shares are of 1."""
    return {name: value.double().mean().item() for name, value in scores._asdict().items()}
