"""MOTA, MOTP, IDF1 and HOTA of one or many videos.

A video is a list of `Sighting`s, one per frame: which true and predicted identities are there, and how alike each pair
is (IoU of boxes or masks, in [0,1]). Every score is a ratio of counts, and the counts of several videos add up: score
each video, sum, then read the ratios.

The conventions are those of the MOTChallenge: a pair counts from a similarity of 0.5 on; CLEAR keeps the pairs of the
frame before as long as they hold; MOTP is the mean similarity of the pairs, so higher is better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Matrix = NDArray[np.float64]
ALPHAS = np.arange(1, 20) * 0.05
_SLACK = np.finfo(np.float64).eps  # a similarity of exactly the threshold counts, whatever its rounding


class Sighting(NamedTuple):
    """One frame: true identities [g], predicted identities [p] (each at most once), similarity [g,p]."""

    truth: Sequence[int]
    predicted: Sequence[int]
    similarity: Matrix


def box_iou(truth: Matrix, predicted: Matrix) -> Matrix:
    """Intersection over union [g,p] of boxes [g,4] and [p,4], each (left, top, width, height)."""
    a, b = truth[:, None], predicted[None]
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


@dataclass(frozen=True)
class Clear:
    """The counts behind MOTA and MOTP."""

    pairs: int = 0
    missed: int = 0
    invented: int = 0
    switches: int = 0
    similarity: float = 0.0

    @property
    def mota(self) -> float:
        """1 - (missed + invented + switched) / true sightings; NaN where there are none. Can be negative."""
        return 1 - _ratio(self.missed + self.invented + self.switches, self.pairs + self.missed)

    @property
    def motp(self) -> float:
        """Mean similarity of the pairs; NaN where there are none."""
        return _ratio(self.similarity, self.pairs)

    def __add__(self, other: Clear) -> Clear:
        return Clear(self.pairs + other.pairs, self.missed + other.missed, self.invented + other.invented,
                     self.switches + other.switches, self.similarity + other.similarity)  # fmt: skip


def _checked(frame: Sighting) -> Matrix:
    """The similarity [g,p] of a frame in which nobody is seen twice."""
    for name, ids in (("true", frame.truth), ("predicted", frame.predicted)):
        if len(set(ids)) != len(ids):
            twice = next(i for i in ids if list(ids).count(i) > 1)
            raise ValueError(f"{name} identity {twice} is in one frame twice; identities are unique within a frame")
    return np.asarray(frame.similarity, dtype=np.float64).reshape(len(frame.truth), len(frame.predicted))


def clear(video: Iterable[Sighting], threshold: float = 0.5) -> Clear:
    """Count what CLEAR MOT counts (Bernardin and Stiefelhagen 2008)."""
    total = Clear()
    last_known: dict[int, int] = {}  # true identity -> the prediction it was last paired with, however long ago
    before: dict[int, int] = {}  # the pairs of the last frame where anything could be paired, as TrackEval has it
    for frame in video:
        similarity = _checked(frame)
        held = np.array([[before.get(g) == p for p in frame.predicted] for g in frame.truth], dtype=bool)
        valid = similarity >= threshold - _SLACK
        # A pair held from the frame before outweighs any number of new ones; invalid ones weigh nothing.
        weight = np.where(valid, similarity + (1 + similarity.size) * held.reshape(similarity.shape), 0)
        rows, columns = linear_sum_assignment(weight, maximize=True)
        kept = valid[rows, columns]
        rows, columns = rows[kept], columns[kept]
        pairs = {frame.truth[r]: frame.predicted[c] for r, c in zip(rows, columns, strict=True)}
        total += Clear(
            pairs=len(pairs),
            missed=len(frame.truth) - len(pairs),
            invented=len(frame.predicted) - len(pairs),
            switches=sum(last_known.get(g, p) != p for g, p in pairs.items()),
            similarity=float(similarity[rows, columns].sum()),
        )
        last_known |= pairs
        before = pairs if similarity.size else before
    return total


@dataclass(frozen=True)
class Identity:
    """The counts behind IDF1: sightings right, missed and wrong when a true track has one predicted track for good."""

    right: int = 0
    missed: int = 0
    wrong: int = 0

    @property
    def idf1(self) -> float:
        """Twice the right ones over all true and predicted sightings; NaN where there are neither."""
        return _ratio(2 * self.right, 2 * self.right + self.missed + self.wrong)

    @property
    def precision(self) -> float:
        """Right ones among the predicted sightings."""
        return _ratio(self.right, self.right + self.wrong)

    @property
    def recall(self) -> float:
        """Right ones among the true sightings."""
        return _ratio(self.right, self.right + self.missed)

    def __add__(self, other: Identity) -> Identity:
        return Identity(self.right + other.right, self.missed + other.missed, self.wrong + other.wrong)


class _Numbered(NamedTuple):
    """A video whose identities are counted from 0, and how often each is seen."""

    frames: list[tuple[NDArray[np.int64], NDArray[np.int64], Matrix]]
    true_sightings: Matrix
    predicted_sightings: Matrix


def _number(video: Iterable[Sighting]) -> _Numbered:
    true_ids: dict[int, int] = {}
    predicted_ids: dict[int, int] = {}
    frames = []
    for frame in video:
        g = np.array([true_ids.setdefault(i, len(true_ids)) for i in frame.truth], dtype=np.int64)
        p = np.array([predicted_ids.setdefault(i, len(predicted_ids)) for i in frame.predicted], dtype=np.int64)
        frames.append((g, p, _checked(frame)))
    counts = [
        np.bincount(np.concatenate([f[side] for f in frames] or [np.zeros(0, np.int64)]), minlength=len(ids))
        for side, ids in enumerate((true_ids, predicted_ids))
    ]
    return _Numbered(frames, counts[0].astype(np.float64), counts[1].astype(np.float64))


def identity(video: Iterable[Sighting], threshold: float = 0.5) -> Identity:
    """Count what IDF1 counts (Ristani et al. 2016): the best one-to-one match of whole tracks."""
    frames, true_sightings, predicted_sightings = _number(video)
    together = np.zeros((len(true_sightings), len(predicted_sightings)))
    for g, p, similarity in frames:
        together[np.ix_(g, p)] += similarity >= threshold - _SLACK
    # Leaving a track unmatched costs what matching it to a track it never meets costs: only the shared sightings count.
    rows, columns = linear_sum_assignment(together, maximize=True)
    right = int(together[rows, columns].sum())
    return Identity(right, int(true_sightings.sum()) - right, int(predicted_sightings.sum()) - right)


@dataclass(frozen=True)
class Hota:
    """The counts behind HOTA, one per threshold alpha.

    Attributes:
        pairs: [alphas], pairs at least that alike.
        missed: [alphas].
        invented: [alphas].
        association: [alphas], the sum over pairs of their association's Jaccard index.
        similarity: [alphas], the sum over pairs of their similarity.
    """

    pairs: Matrix
    missed: Matrix
    invented: Matrix
    association: Matrix
    similarity: Matrix

    @property
    def det_a(self) -> float:
        """Detection accuracy, averaged over the thresholds."""
        return float(np.mean(self._detection))

    @property
    def ass_a(self) -> float:
        """Association accuracy, averaged over the thresholds."""
        return float(np.mean(self._association))

    @property
    def loc_a(self) -> float:
        """Mean similarity of the pairs, averaged over the thresholds; 1 where there is no pair."""
        return float(np.mean(np.where(self.pairs > 0, self.similarity / np.maximum(self.pairs, 1), 1)))

    @property
    def hota(self) -> float:
        """The geometric mean of detection and association accuracy at each threshold, averaged over them."""
        return float(np.mean(np.sqrt(self._detection * self._association)))

    @property
    def _detection(self) -> Matrix:
        everything = self.pairs + self.missed + self.invented
        return np.where(everything > 0, self.pairs / np.maximum(everything, 1), np.nan)

    @property
    def _association(self) -> Matrix:
        nothing = np.where(self.pairs + self.missed + self.invented > 0, 0, np.nan)
        return np.where(self.pairs > 0, self.association / np.maximum(self.pairs, 1), nothing)

    def __add__(self, other: Hota) -> Hota:
        return Hota(self.pairs + other.pairs, self.missed + other.missed, self.invented + other.invented,
                    self.association + other.association, self.similarity + other.similarity)  # fmt: skip


def hota(video: Iterable[Sighting]) -> Hota:
    """Count what HOTA counts (Luiten et al. 2020), at alpha 0.05 to 0.95 by 0.05.

    Within a frame pairs are chosen to be alike and, above all, to belong to tracks that agree over the whole video.
    """
    frames, true_sightings, predicted_sightings = _number(video)
    agreement = np.zeros((len(true_sightings), len(predicted_sightings)))
    for g, p, similarity in frames:
        rivals = similarity.sum(0, keepdims=True) + similarity.sum(1, keepdims=True) - similarity
        agreement[np.ix_(g, p)] += np.divide(similarity, rivals, out=np.zeros_like(similarity), where=rivals > _SLACK)
    agreement /= np.maximum(true_sightings[:, None] + predicted_sightings - agreement, _SLACK)

    similar = np.zeros(len(ALPHAS))
    together = np.zeros((len(ALPHAS), *agreement.shape))
    for g, p, similarity in frames:
        rows, columns = linear_sum_assignment(agreement[np.ix_(g, p)] * similarity, maximize=True)
        alike = similarity[rows, columns]
        counts = alike >= ALPHAS[:, None] - _SLACK
        together[:, g[rows], p[columns]] += counts
        similar += (counts * alike).sum(1)
    jaccard = together / np.maximum(true_sightings[:, None] + predicted_sightings - together, 1)
    pairs = together.sum((1, 2))
    return Hota(pairs, true_sightings.sum() - pairs, predicted_sightings.sum() - pairs,
                (together * jaccard).sum((1, 2)), similar)  # fmt: skip
