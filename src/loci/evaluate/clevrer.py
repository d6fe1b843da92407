"""CLEVRER: some frames are given, then the network runs in closed loop; pictures (fig:clevrer_prediction) and numbers.

Two protocols: the paper's, 50 frames given and 70 imagined at the network's own size; and that of later papers, every
second frame, 6 given and 42 imagined, compared at 64×64. Intersections are over unions, so a perfect mask scores 1.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from loci.data.clip import ABSENT, Clip
from loci.data.source import Source
from loci.evaluate import figures, metrics
from loci.evaluate import metrics_masks as masks_
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, clips_in_batches, forecast, quickened, silent
from loci.model import Loci, StepOutput

_SHOWN = 3
"""Clips in the strip."""
_IN_TIME = ("frames", "visible", "whole", "position", "world", "share", "state", "container")


@dataclass(frozen=True)
class Protocol:
    """How much is given, how far it is imagined, and at what size it is compared."""

    name: str
    given: int
    steps: int
    stride: int = 1
    size: tuple[int, int] | None = None
    marks: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 70)


PAPER = Protocol("clevrer", 50, 70)
LATER = Protocol("clevrer-6-42", 6, 42, stride=2, size=(64, 64), marks=(1, 10, 20, 30, 42))


class Means:
    """Means over clips of measures per predicted frame, that may be NaN where there is nothing to measure."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.total: dict[str, Tensor] = {}
        self.count: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor, at: int) -> None:
        """Values [B,T] from predicted frame `at` on."""
        values = values.double().cpu()
        for kept in (self.total, self.count):
            kept.setdefault(name, torch.zeros(self.steps, dtype=torch.float64))
        span = slice(at, at + values.shape[1])
        self.total[name][span] += values.nan_to_num().sum(0)
        self.count[name][span] += (~values.isnan()).sum(0)

    def mean(self, name: str) -> Tensor:
        """[steps]; NaN where nothing was measured."""
        return self.total[name] / self.count[name]


def thinned(clip: Clip, stride: int, length: int) -> Clip:
    """Every `stride`-th frame, `length` of them."""
    span = slice(None, stride * length, stride)
    values = {name: getattr(clip, name) for name in _IN_TIME}
    changed = {name: value[:, span] for name, value in values.items() if value is not None}
    if clip.background is not None and clip.background.shape[1] > 1:
        changed["background"] = clip.background[:, span]
    return dataclasses.replace(clip, **changed)


@torch.no_grad()
def evaluate(
    model: Loci,
    source: Source,
    protocol: Protocol = PAPER,
    *,
    count: int,
    seed: int = 0,
    scene: Tensor | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Report:
    """Score the closed loop; where the source has masks and places, those of the slots too."""
    means = Means(protocol.steps)
    rows: list[list[Pixels]] = []
    names: list[str] = []
    whole: dict[str, list[Tensor]] = {"FG-ARI": [], "mIoU": []}
    eyes = quickened(model, source, count, protocol.given + protocol.steps, batch=batch, labels=True, device=device)
    for clip in clips_in_batches(source, count, model=model, batch=batch, device=device, advance=advance):
        clip = thinned(clip, protocol.stride, protocol.given + protocol.steps)
        future = thinned_from(clip, protocol.given)
        frames, labels, places = (part[:, : future.length] for part in _small(eyes, clip, seed, protocol, scene))
        _score(means, whole, frames, labels, places, future, protocol.size or model.size)
        at = [n for n in protocol.marks if n <= future.length]
        for b in range(min(clip.batch, _SHOWN - len(rows) // 2)):
            truth = _resized(future.frames[b : b + 1].float() / 255, protocol.size)
            rows.append([figures.pixels(truth[0, n - 1]) for n in at])
            rows.append([figures.pixels(frames[b, n - 1]) for n in at])
            names += ["truth", "imagined"]
    marks = [f"+{n}" for n in protocol.marks][: len(rows[0])]
    facts: dict[str, Entry] = {
        "clips": int(next(iter(means.count.values()))[0]),
        "given": protocol.given,
        "imagined": protocol.steps,
        "every": protocol.stride,
        "compared at": "x".join(map(str, protocol.size or model.size)),
        "seed": seed,
    }
    pictures = {"strip": figures.strip(rows, marks, names, tall=figures.TALL), "curves": _picture(means)}
    curves = {name: means.mean(name).tolist() for name in means.total}
    return Report(protocol.name, facts, _tables(means, whole, protocol), pictures, curves)


def thinned_from(clip: Clip, first: int) -> Clip:
    """The clip from a frame on."""
    values = {name: getattr(clip, name) for name in _IN_TIME}
    return dataclasses.replace(clip, **{name: value[:, first:] for name, value in values.items() if value is not None})


def _small(model: Any, clip: Clip, seed: int, protocol: Protocol, scene: Tensor | None) -> tuple[Tensor, ...]:
    """Of all predicted frames what is scored: the pictures, who is where, the slots' places; all else is let go."""
    parts: list[tuple[Tensor, ...]] = []
    output: StepOutput
    for output in forecast(model, clip, seed, protocol.given, protocol.steps, scene=scene):
        labels = masks_.labels_of_slots(_resized(output.masks[:, None], protocol.size)).to(torch.int16)
        frames = _resized(output.frame[:, None].clamp(0, 1), protocol.size)
        parts.append((frames, labels, output.code.position[:, None, :, :2].clone()))
    return tuple(torch.cat(values, 1) for values in zip(*parts, strict=True))


def _resized(pictures: Tensor, size: tuple[int, int] | None) -> Tensor:
    """[B,T,C,H,W] by the mean over areas."""
    if size is None or pictures.shape[-2:] == size:
        return pictures
    return F.interpolate(pictures.flatten(0, 1), size, mode="area").unflatten(0, pictures.shape[:2])


def _score(
    means: Means,
    whole: dict[str, list[Tensor]],
    frames: Tensor,
    labels: Tensor,
    places: Tensor,
    future: Clip,
    size: tuple[int, int],
) -> None:
    """Add a batch's measures; `future` has the frames that were imagined."""
    truth = _resized(future.frames.float() / 255, size)
    means.add("MSE per pixel", metrics.mse_per_pixel(frames, truth), 0)
    means.add("PSNR", metrics.psnr(frames, truth), 0)
    means.add("SSIM", metrics.ssim(frames, truth), 0)
    if future.visible is None:
        return
    shares = future.visible.float()
    known = masks_.labels_of_slots(_resized(torch.cat((shares, 1 - shares.sum(2, keepdim=True)), 2), size))
    matched = masks_.match(labels, known, objects=future.visible.shape[2])
    means.add("FG-ARI", masks_.fg_ari(labels, known), 0)
    means.add("mIoU", masks_.miou(matched), 0)
    videos = masks_.whole_videos(labels), masks_.whole_videos(known)
    whole["FG-ARI"].append(masks_.fg_ari(*videos, shared=1).cpu())
    whole["mIoU"].append(masks_.miou(masks_.match(*videos, shared=1)).cpu())
    if future.position is None or future.state is None:
        return
    # The slot that had an object in the first imagined frame is asked for its place ever after.
    slot = matched.slot[:, :1, :].expand(-1, future.length, -1)
    place = places.gather(2, slot.clamp(min=0)[..., None].expand(*slot.shape, 2))
    error = metrics.position_error(place, future.position, size)
    inside = (future.position.abs() <= 1).all(-1) & (future.state != ABSENT) & (slot >= 0)
    means.add("position error (pixels)", torch.where(inside, error, torch.nan).nanmean(-1), 0)


def _tables(means: Means, whole: dict[str, list[Tensor]], protocol: Protocol) -> tuple[Table, ...]:
    marks = [n for n in protocol.marks if n <= protocol.steps]
    names = list(means.total)
    rows: list[tuple[Entry, ...]] = []
    for name in names:
        curve = means.mean(name)
        rows.append((name, *(curve[n - 1].item() for n in marks), curve.nanmean().item()))
    header = ("measure", *(f"+{n}" for n in marks), f"mean 1…{protocol.steps}")
    note = "The paper shows pictures without numbers." if protocol.name == PAPER.name else "Not in the paper."
    tables = [Table(f"{protocol.given} frames given, {protocol.steps} in closed loop", header, tuple(rows), note)]
    if whole["mIoU"]:
        scores = tuple((name, torch.cat(values).nanmean().item()) for name, values in whole.items())
        tables.append(Table("Masks over whole videos", ("measure", "value"), scores))
    return tuple(tables)


def _picture(means: Means) -> Pixels:
    names = list(means.total)

    def draw(*axes: object) -> None:
        for ax, name in zip(axes, names, strict=True):
            figures.lines(
                ax, {name: (range(1, means.steps + 1), means.mean(name).tolist())}, title=name, x="imagined frame"
            )

    return figures.figure(draw, columns=len(names), size=(3.4, 2.8))
