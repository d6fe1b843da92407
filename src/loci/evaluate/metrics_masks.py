"""How well predicted segments agree with the true ones.

A segmentation is a map of whole numbers: 0 is the background, n+1 is object or slot n. A leading index is scored by
itself: [B,T,H,W] gives a number per frame; `whole_videos` turns it into [B,1,T·H·W], where a video is scored at once
and an object that changes its slot costs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def labels_of_objects(visible: Tensor) -> Tensor:
    """Label map [...,H,W] of masks [...,N,H,W] that do not overlap (`Clip.visible`)."""
    labels = torch.zeros(*visible.shape[:-3], *visible.shape[-2:], dtype=torch.int16, device=visible.device)
    for n, mask in enumerate(visible.unbind(-3), start=1):
        labels.masked_fill_(mask, n)
    return labels


def labels_of_slots(masks: Tensor) -> Tensor:
    """Label map [...,H,W] of soft masks [...,K+1,H,W] with the background last: the strongest wins."""
    K = masks.shape[-3] - 1
    return (masks.argmax(-3) + 1) % (K + 1)


def whole_videos(labels: Tensor) -> Tensor:
    """[B,T,H,W] as [B,1,T·H·W], for scores per video."""
    return labels.flatten(1)[:, None]


def contingency(predicted: Tensor, truth: Tensor, shared: int = 2) -> Tensor:
    """Points with predicted label p and true label g, [...,P,G], from maps whose last `shared` axes are points."""
    if predicted.shape != truth.shape:
        raise ValueError(f"segmentations of shape {tuple(predicted.shape)} and {tuple(truth.shape)} do not match")
    lead = predicted.shape[: predicted.dim() - shared]
    if predicted.numel() == 0:
        return torch.zeros(*lead, 1, 1, dtype=torch.int64, device=predicted.device)
    predicted, truth = predicted.long().reshape(math.prod(lead), -1), truth.long().reshape(math.prod(lead), -1)
    P, G = int(predicted.max()) + 1, int(truth.max()) + 1
    cell = predicted * G + truth + torch.arange(len(predicted), device=predicted.device)[:, None] * (P * G)
    return torch.bincount(cell.flatten(), minlength=len(predicted) * P * G).reshape(*lead, P, G)


def _pairs(count: Tensor) -> Tensor:
    return count * (count - 1) / 2


def adjusted_rand(table: Tensor) -> Tensor:
    """Adjusted Rand index of contingency tables [...,P,G].

    Where chance leaves no room (both have one segment, or both only single points) they agree and score 1; where there
    is no point at all the score is NaN: nothing was asked.
    """
    table = table.double()
    points = table.sum((-2, -1))
    together = _pairs(table).sum((-2, -1))
    rows, columns = _pairs(table.sum(-1)).sum(-1), _pairs(table.sum(-2)).sum(-1)
    expected = rows * columns / _pairs(points).clamp(min=1)
    best = (rows + columns) / 2
    score = torch.where(best == expected, 1.0, (together - expected) / (best - expected))
    return torch.where(points == 0, torch.nan, score)


def ari(predicted: Tensor, truth: Tensor, shared: int = 2) -> Tensor:
    """Adjusted Rand index over all points; the background counts as a segment."""
    return adjusted_rand(contingency(predicted, truth, shared))


def fg_ari(predicted: Tensor, truth: Tensor, shared: int = 2) -> Tensor:
    """Adjusted Rand index over the points whose truth is not background; NaN where there are none."""
    return adjusted_rand(contingency(predicted, truth, shared)[..., 1:])


class Matched(NamedTuple):
    """True objects and what was matched to them, one to one, so that the sum of the overlaps is largest.

    Attributes:
        iou: [...,N] float64, intersection over union; 0 where nothing was matched, NaN where there is no object.
        size: [...,N] int64, true pixels.
        slot: [...,N] int64, which slot was matched, or -1.
    """

    iou: Tensor
    size: Tensor
    slot: Tensor


def iou_table(table: Tensor) -> Tensor:
    """Intersection over union of all foreground segments, [...,P-1,G-1], from a contingency table [...,P,G]."""
    table = table.double()
    union = table.sum(-1, keepdim=True) + table.sum(-2, keepdim=True) - table
    return (table / union.clamp(min=1))[..., 1:, 1:]


def match(predicted: Tensor, truth: Tensor, shared: int = 2, objects: int | None = None) -> Matched:
    """Match predicted to true foreground segments by the Hungarian method.

    Args:
        predicted: label map; its last `shared` axes are points.
        truth: label map of the same shape.
        shared: how many axes are points: 2 for [H,W], 1 after `whole_videos`.
        objects: N, where it may exceed the highest label seen.
    """
    table = contingency(predicted, truth, shared)
    lead = table.shape[:-2]
    size = table.sum(-2)[..., 1:]
    N = size.shape[-1] if objects is None else objects
    overlap = iou_table(table).cpu().numpy().reshape(math.prod(lead), *(n - 1 for n in table.shape[-2:]))
    iou = np.zeros((len(overlap), N))
    slot = np.full((len(overlap), N), -1)
    for n, matrix in enumerate(overlap):
        rows, columns = linear_sum_assignment(matrix, maximize=True)
        kept = matrix[rows, columns] > 0
        rows, columns = rows[kept], columns[kept]
        iou[n, columns], slot[n, columns] = matrix[rows, columns], rows
    size = torch.nn.functional.pad(size, (0, N - size.shape[-1]))
    found = torch.from_numpy(iou).to(size.device).reshape(size.shape)
    return Matched(
        torch.where(size > 0, found, torch.nan), size, torch.from_numpy(slot).to(size.device).reshape(size.shape)
    )


def miou(matched: Matched) -> Tensor:
    """Mean over the true objects of each map; unmatched objects count 0; NaN where there are none."""
    return matched.iou.nanmean(-1)


def mask_average(matched: Matched) -> Tensor:
    """The paper's "mask avg": the mean over every object of the whole data set."""
    return matched.iou.nanmean()


def pixel_average(matched: Matched) -> Tensor:
    """The paper's "pixel avg": the same mean, each object weighted by its true size."""
    return (matched.iou.nan_to_num() * matched.size).sum() / matched.size.sum()
