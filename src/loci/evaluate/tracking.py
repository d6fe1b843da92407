"""How well a network follows the objects of any source: places, masks, identities, and what it knows of the unseen.

The network predicts every frame before it sees it, and the prediction is what is scored: frames 1 to T-1. A slot is
reported in a frame where it wins at least a few pixels; it keeps its number for good, as an identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from loci.data.clip import VISIBLE, Clip
from loci.data.source import Source
from loci.evaluate import figures, metrics
from loci.evaluate import metrics_masks as masks_
from loci.evaluate import metrics_permanence as permanence_
from loci.evaluate import metrics_tracking as tracks_
from loci.evaluate.quick import Quick
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, clips_in_batches, quickened, silent, watch
from loci.model import Loci

SPECK = 1 / 20_000
"""The share of a frame's pixels below which a slot's mask is a speck, and not reported."""
REACH = 0.08
"""Where there are no masks: how far, as a share of the frame's diagonal, a slot may be from an object it has found."""
_COLUMNS = 8
_ROWS = 3


@dataclass
class Identities:
    """Who was taken for whom, over all videos so far."""

    clear: tracks_.Clear = field(default_factory=tracks_.Clear)
    identity: tracks_.Identity = field(default_factory=tracks_.Identity)
    hota: tracks_.Hota | None = None

    def add(self, video: list[tracks_.Sighting]) -> None:
        """One more."""
        self.clear += tracks_.clear(video)
        self.identity += tracks_.identity(video)
        counts = tracks_.hota(video)
        self.hota = counts if self.hota is None else self.hota + counts

    def rows(self, how: str = "") -> list[tuple[Entry, ...]]:
        """For a table; none without videos."""
        if self.hota is None:
            return []
        values: dict[str, Entry] = {
            "MOTA": self.clear.mota,
            "MOTP": self.clear.motp,
            "identity switches": self.clear.switches,
            "IDF1": self.identity.idf1,
            "HOTA": self.hota.hota,
            "DetA": self.hota.det_a,
            "AssA": self.hota.ass_a,
        }
        return [(name + how, value) for name, value in values.items()]


@dataclass
class Scores:
    """What has been measured so far; lists have an entry for each batch."""

    frame: dict[str, list[Tensor]] = field(default_factory=dict)
    by_mask: Identities = field(default_factory=Identities)
    by_box: Identities = field(default_factory=Identities)
    permanence: list[permanence_.Permanence] = field(default_factory=list)

    def add(self, name: str, values: Tensor) -> None:
        """Measures of any shape, NaN where there was nothing to measure."""
        self.frame.setdefault(name, []).append(values.double().flatten())

    def mean(self, name: str) -> float:
        """Over all that were measured."""
        return torch.cat(self.frame[name]).nanmean().item()


@dataclass(frozen=True)
class Seen:
    """A batch's predictions for frames 1 to T-1."""

    labels: Tensor
    """[B,T-1,H,W] int16, who wins each pixel; 0 is the background."""
    places: Tensor
    """[B,T-1,K,2]"""


@torch.no_grad()
def evaluate(
    model: Loci,
    source: Source,
    *,
    count: int,
    seed: int = 0,
    scene: Tensor | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Report:
    """Score a network on whatever the source knows of its clips."""
    scores, watched = Scores(), 0
    rows: list[list[Pixels]] = []
    times: list[int] = []
    eyes = quickened(model, source, count, source.length, batch=batch, labels=True, device=device)
    for clip in clips_in_batches(source, count, model=model, batch=batch, device=device, advance=advance):
        times = sorted({max(1, round(n * (clip.length - 1) / _COLUMNS)) for n in range(1, _COLUMNS + 1)})
        seen, pictures = _watch(eyes, clip, seed, scene, scores, times, _ROWS - len(rows))
        rows += pictures
        watched += clip.batch
        score(scores, seen, clip, model.size)
    facts: dict[str, Entry] = {"clips": watched, "size": "x".join(map(str, model.size)), "seed": seed}
    sheet = figures.strip(rows, [f"t={t}" for t in times], tall=figures.TALL)
    return Report("tracking", facts, tables(scores), {"slots": sheet})


def _watch(
    model: Loci | Quick, clip: Clip, seed: int, scene: Tensor | None, scores: Scores, times: list[int], shown: int
) -> tuple[Seen, list[list[Pixels]]]:
    """One pass over a batch; a row of pictures of each of its first `shown` clips."""
    labels, places, used = [], [], []
    pictures: list[list[Pixels]] = [[] for _ in range(min(shown, clip.batch))]
    for t, (state, output) in enumerate(watch(model, clip, seed, scene=scene)):
        if t + 1 == clip.length:
            break
        truth = clip.frames[:, t + 1]
        scores.add("L2_object", metrics.l2_object(output.frame, truth, state.background))
        scores.add("MSE per pixel", metrics.mse_per_pixel(output.frame.clamp(0, 1), truth))
        scores.add("PSNR", metrics.psnr(output.frame.clamp(0, 1), truth))
        labels.append(masks_.labels_of_slots(output.masks).to(torch.int16))
        places.append(output.code.position[..., :2].clone())
        used.append(output.claimed.sum(1))
        for b, row in enumerate(pictures if t + 1 in times else ()):
            row.append(figures.tinted(truth[b], output.masks[b]))
    scores.add("slots in use", torch.stack(used, 1))
    return Seen(torch.stack(labels, 1), torch.stack(places, 1)), pictures


def score(scores: Scores, seen: Seen, clip: Clip, size: tuple[int, int]) -> None:
    """Add a batch to the scores."""
    matched = None
    if clip.visible is not None:
        truth = masks_.labels_of_objects(clip.visible[:, 1:])
        found = masks_.match(seen.labels, truth, objects=clip.visible.shape[2])
        matched = found.slot
        _segments(scores, seen, truth, found)
        if clip.whole is not None:
            alone = torch.where(apart(clip.whole[:, 1:]), masks_.fg_ari(seen.labels, truth), torch.nan)
            scores.add("FG-ARI (frames without overlap)", alone)
        for b in range(clip.batch):
            state = None if clip.state is None else clip.state[b, 1:]
            video = sightings(seen.labels[b], truth[b], state)
            scores.by_mask.add(video)
            scores.by_box.add(boxed(video, seen.labels[b], truth[b]))
    if clip.position is None or clip.state is None:
        return
    step = torch.tensor([(n - 1) / 2 for n in size], device=clip.frames.device)
    places, positions, state = seen.places * step, clip.position[:, 1:] * step, clip.state[:, 1:]
    if matched is None:
        matched = permanence_.match_positions(places, positions, state == VISIBLE, REACH * math.hypot(*size))
    part = permanence_.permanence(places, positions, state, matched)
    scores.permanence.append(permanence_.Permanence(*(value.cpu() for value in part)))


def apart(whole: Tensor) -> Tensor:
    """Where no two of the objects' whole masks [B,T,N,H,W] meet, [B,T]."""
    return whole.sum(2, dtype=torch.uint8).amax((-2, -1)) <= 1


def _segments(scores: Scores, seen: Seen, truth: Tensor, found: masks_.Matched) -> None:
    scores.add("FG-ARI", masks_.fg_ari(seen.labels, truth))
    scores.add("ARI", masks_.ari(seen.labels, truth))
    scores.add("mIoU", masks_.miou(found))
    videos = masks_.whole_videos(seen.labels), masks_.whole_videos(truth)
    scores.add("FG-ARI (video)", masks_.fg_ari(*videos, shared=1))
    scores.add("mIoU (video)", masks_.miou(masks_.match(*videos, shared=1)))


def sightings(labels: Tensor, truth: Tensor, state: Tensor | None) -> list[tracks_.Sighting]:
    """A video [T,H,W] as the tracking metrics want it: slots that win some pixels, objects that can be seen."""
    table = masks_.contingency(labels, truth).cpu()
    least = max(1, SPECK * labels.shape[-1] * labels.shape[-2])
    overlap = masks_.iou_table(table).numpy()  # [T,K,N]
    reported = (table.sum(-1)[:, 1:] >= least).numpy()
    there = table.sum(-2)[:, 1:] > 0
    if state is not None:
        there &= (state[:, : there.shape[1]] == VISIBLE).cpu()
    video = []
    for t, present in enumerate(there.numpy()):
        objects, slots = np.flatnonzero(present), np.flatnonzero(reported[t])
        video.append(tracks_.Sighting(objects.tolist(), slots.tolist(), overlap[t][np.ix_(slots, objects)].T))
    return video


def boxed(video: list[tracks_.Sighting], labels: Tensor, truth: Tensor) -> list[tracks_.Sighting]:
    """The same sightings, as alike as the boxes around them are: a blob may follow a thin digit well."""
    slots, objects = boxes(labels), boxes(truth)
    return [
        frame._replace(similarity=tracks_.box_iou(objects[t, list(frame.truth)], slots[t, list(frame.predicted)]))
        for t, frame in enumerate(video)
    ]


def boxes(labels: Tensor) -> tracks_.Matrix:
    """The boxes (left, top, width, height) around the segments of label maps [T,H,W], [T,N,4]; 0 for one not there."""
    sides = []
    for number in range(1, int(labels.max()) + 1):
        mask = labels == number
        edges = []
        for axis in (1, 2):  # columns, then rows
            there = mask.any(axis).int()
            first, last = there.argmax(1), there.shape[1] - there.flip(1).argmax(1)
            edges.append((first, torch.where(there.any(1), last - first, 0)))
        (left, width), (top, height) = edges
        sides.append(torch.stack((left, top, width, height), -1))
    return torch.stack(sides, 1).cpu().double().numpy() if sides else np.zeros((len(labels), 0, 4))


def tables(scores: Scores) -> tuple[Table, ...]:
    """One of everything, and one of object permanence where the truth is known."""
    rows: list[tuple[Entry, ...]] = [(name, scores.mean(name)) for name in scores.frame]
    rows += [*scores.by_mask.rows(), *scores.by_box.rows(" (boxes)")]
    found = permanence_.pooled(scores.permanence) if scores.permanence else None
    if found is not None:
        visible = metrics.summary(found.error[found.state == VISIBLE])
        rows += [
            ("position error (pixels), mean", visible.mean),
            ("position error (pixels), median", visible.median),
            ("objects' frames held by no slot", int(found.unheld.sum())),
        ]
    note = (
        "Of the prediction of each frame before it was seen. L2_object is a sum over a frame's pixels and channels. "
        "Identities are of masks that overlap by half, and once more of the boxes around them. "
        "An object's position error is that of the slot that was last matched to it."
    )
    result = [Table("Tracking", ("measure", "value"), tuple(rows), note)]
    return (*result, *(permanence_tables(found) if found is not None else ()))


def permanence_tables(found: permanence_.Permanence, what: str = "Object permanence") -> tuple[Table, ...]:
    """Where unseen objects are said to be, and whether they are found again, by state and by time hidden."""
    header = ("error (pixels)", "sightings", "median", "mean", "25%", "75%", "found again in the same slot", "of")
    again = permanence_.found_again_by_state(found)
    states: list[tuple[Entry, ...]] = []
    for name, s in permanence_.error_by_state(found).items():
        share = again.get(name)
        back = (None, None) if share is None else (share.value, share.whole)
        states.append((name, s.number, s.median, s.mean, s.low_25, s.high_75, *back))
    spans = permanence_.found_again_by_duration(found)
    hidden: list[tuple[Entry, ...]] = []
    for span, s in permanence_.error_by_duration(found).items():
        label = f"hidden {span.first}+" if span.last is None else f"hidden {span.first}-{span.last}"
        back_again = (spans[span].value, spans[span].whole)
        hidden.append((label, s.number, s.median, s.mean, s.low_25, s.high_75, *back_again))
    tables = (
        Table(f"{what} by state", header, tuple(row for row in states if row[1])),
        Table(f"{what} by frames hidden", header, tuple(row for row in hidden if row[1])),
    )
    return tuple(table for table in tables if table.rows)
