"""Lesions (appendix): noise on the codes, and what it does.

Between encoder and transition, normal noise of 0 to 1 on the position code, on the Gestalt code, or on both, scored on
CATER and on Moving MNIST (fig:position-Gestalt_noise_ablation_cater and _mmnist). Before the decoder, noise on one part
of the predicted code while the others stay (fig:clevrer_prediction2, fig:moving_mnist_leasion): pictures that show what
each part stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loci import random
from loci.data.clip import Clip
from loci.data.source import Source
from loci.evaluate import figures, metrics
from loci.evaluate.cater import Found, Locate, by_head, follow_clip, joined, snitch_truth
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, batch_size, begin, clips_in_batches, forecast, keys_of, silent, watch
from loci.model import Code, Loci, StepOutput

LEVELS = tuple(n / 10 for n in range(11))


Level = float | Tensor
"""How strong noise is: the same for all clips, or [B,1,1]."""


@dataclass(frozen=True)
class Noise:
    """Normal noise on the encoder's code, a function of the clips' keys and of the frame."""

    keys: Tensor
    position: Level
    gestalt: Level

    def at(self, time: int) -> Callable[[Code], Code]:
        """What is done to the code of frame `time`: row, column and sigma, and the Gestalt."""

        def disturb(code: Code) -> Code:
            key = random.fold(random.fold(self.keys, "lesion"), time)
            where = random.normal(random.fold(key, "position"), tuple(code.position.shape[1:]), code.position.dtype)
            what = random.normal(random.fold(key, "gestalt"), tuple(code.gestalt.shape[1:]), code.gestalt.dtype)
            return code._replace(
                position=code.position + self.position * where, gestalt=code.gestalt + self.gestalt * what
            )

        return disturb


Cell = tuple[float, float]
"""How much noise on the position, how much on the Gestalt."""


def cells(levels: Sequence[float]) -> list[Cell]:
    """Every pair of levels."""
    return [(position, gestalt) for position in levels for gestalt in levels]


def tiled(clip: Clip, some: Sequence[Cell], seed: int) -> tuple[Clip, Noise]:
    """The clips once for each pair of levels, side by side, and the noise of each."""
    entries = torch.arange(clip.batch).repeat(len(some)).to(clip.frames.device)
    copies = Clip(clip.frames, clip.background, index=clip.index)[entries]
    levels = torch.tensor(some, dtype=torch.float32, device=clip.frames.device).repeat_interleave(clip.batch, 0)
    position, gestalt = levels[:, :, None, None].unbind(1)
    return copies, Noise(keys_of(copies, seed), position, gestalt)


@torch.no_grad()
def cater(
    model: Loci,
    source: Source,
    locate: Locate = by_head,
    *,
    count: int,
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    scene: Tensor | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Report:
    """L1, L2, L2_object, top 1 and top 5 under every pair of levels."""
    grid = cells(levels)
    parts: dict[Cell, list[Found]] = {cell: [] for cell in grid}
    room = batch or batch_size(source, count * len(grid), model, labels=True, device=device)
    side_by_side = max(1, min(count, room // len(grid)))
    for clip in clips_in_batches(source, count, batch=side_by_side, device=device):
        world, state = (value.cpu() for value in snitch_truth(clip, source))
        at_once = max(1, room // clip.batch)
        for first in range(0, len(grid), at_once):
            some = grid[first : first + at_once]
            copies, noise = tiled(clip, some, seed)
            said, error, _ = follow_clip(model, copies, locate, seed, scene, noise.at)
            answers = zip(said.cpu().split(clip.batch), error.cpu().split(clip.batch), strict=True)
            for cell, (place, missed) in zip(some, answers, strict=True):
                parts[cell].append(Found(place[None], world, state, missed[None]))
            advance(clip.batch * len(some))
    values: dict[str, dict[Cell, float]] = {}
    for cell, found in parts.items():
        whole = joined(found)
        scores = whole.final(sees_last=False)
        named = {"L1 (grid)": scores.l1, "L2": scores.l2, "L2_object": whole.object_error}
        named |= {"Top 1 (%)": 100 * scores.top1, "Top 5 (%)": 100 * scores.top5}
        for name, value in named.items():
            values.setdefault(name, {})[cell] = value.double().mean().item()
    return _report("lesions-cater", values, levels, {"clips": whole.world.shape[0], "seed": seed})


@torch.no_grad()
def moving_mnist(
    model: Loci,
    source: Source,
    *,
    count: int,
    levels: Sequence[float] = LEVELS,
    given: int = 10,
    steps: int = 10,
    seed: int = 0,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Report:
    """MSE and SSIM of the closed loop under every pair of levels; noise in the frames given, and in those imagined."""
    sums: dict[Cell, list[tuple[float, float]]] = {cell: [] for cell in cells(levels)}
    seen = 0
    for clip in clips_in_batches(source, count, model=model, batch=batch, labels=False, device=device):
        seen += clip.batch
        truth = clip.frames[:, given : given + steps, :1]
        for cell, scores in sums.items():
            frames = torch.stack([o.frame for o in lesioned(model, clip, seed, given, steps, *cell)], 1)[:, :, :1]
            mse, ssim = (measure(frames.clamp(0, 1), truth).mean(1).sum().item() for measure in _MEASURES)
            scores.append((mse, ssim))
            advance(clip.batch)
    values = {
        name: {cell: sum(score[n] for score in scores) / seen for cell, scores in sums.items()}
        for n, name in enumerate(("MSE", "SSIM"))
    }
    facts: dict[str, Entry] = {"sequences": seen, "given": given, "predicted": steps, "seed": seed}
    return _report("lesions-moving-mnist", values, levels, facts)


_MEASURES = (metrics.mse, metrics.ssim)


def lesioned(
    model: Loci, clip: Clip, seed: int, given: int, steps: int, position: float, gestalt: float
) -> Iterator[StepOutput]:
    """Outputs for frames given, given+1, … with noise on every code.

    Seeing one's own prediction leaves no error, so this is the closed loop of `Loci.imagine` step by step.
    """
    noise = Noise(keys_of(clip, seed), position, gestalt)
    state = begin(model, clip, seed)
    for t in range(given + steps - 1):
        frame = clip.frames[:, t] if t < given else state.frame.clamp(0, 1)
        state, output = model.step(frame, state, disturb=noise.at(t))
        if t >= given - 1:
            yield output


def _report(
    name: str, values: Mapping[str, Mapping[Cell, float]], levels: Sequence[float], facts: dict[str, Entry]
) -> Report:
    arms: dict[str, Callable[[float], Cell]] = {
        "position": lambda level: (level, 0.0),
        "Gestalt": lambda level: (0.0, level),
        "both": lambda level: (level, level),
    }
    curves = {
        f"{measure}, {arm}": [grid[pair(level)] for level in levels]
        for measure, grid in values.items()
        for arm, pair in arms.items()
    }
    rows: tuple[tuple[Entry, ...], ...] = tuple((what, *row) for what, row in curves.items())
    table = Table(
        "Noise between encoder and transition",
        ("measure, noise on", *(f"{level:.1f}" for level in levels)),
        rows,
        "The paper gives this as a figure, without numbers.",
    )
    grids = {
        f"{measure} grid": [value for row in _square(grid, levels) for value in row.tolist()]
        for measure, grid in values.items()
    }

    def draw(*axes: Any) -> None:
        half = len(values)
        for ax, (measure, grid) in zip(axes[:half], values.items(), strict=True):
            figures.grid(ax, _square(grid, levels), levels, title=measure, x="position noise", y="Gestalt noise")
        for ax, measure in zip(axes[half:], values, strict=True):
            named = {arm: (levels, curves[f"{measure}, {arm}"]) for arm in arms}
            figures.lines(ax, named, title=measure, x="noise")

    picture = figures.figure(draw, columns=len(values), rows=2, size=(3.6, 3))
    return Report(name, facts, (table,), {"noise": picture}, {**curves, **grids})


def _square(grid: Mapping[Cell, float], levels: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows are levels of Gestalt noise, columns those of position noise."""
    return np.array([[grid[position, gestalt] for position in levels] for gestalt in levels])


def altered(code: Code, part: str, key: Tensor) -> Code:
    """A code with noise on one part, as in the paper: a quarter of a normal number on what has a scale.

    Sizes are kept in [0,1], places in [-0.9,0.9]; Gestalts are rounded, to be a code again. Priorities get noise of one
    rank.
    """
    position, gestalt, priority = code

    def normals(like: Tensor) -> Tensor:
        return random.normal(random.fold(key, part), tuple(like.shape), like.dtype)

    if part == "position":
        moved = (position[..., :2] + 0.25 * normals(position[..., :2])).clamp(-0.9, 0.9)
        return code._replace(position=torch.cat((moved, position[..., 2:]), -1))
    if part == "size":
        grown = (position[..., 2:] + 0.25 * normals(position[..., 2:])).clamp(0, 1)
        return code._replace(position=torch.cat((position[..., :2], grown), -1))
    if part == "Gestalt":
        return code._replace(gestalt=(gestalt + normals(gestalt)).round().clamp(0, 1))
    if part == "priority":
        return code._replace(priority=priority + 25 * priority.shape[-1] * normals(priority))
    raise ValueError(f"no part {part!r} in a code: position, size, Gestalt or priority")


PARTS = ("position", "priority", "size", "Gestalt")


@torch.no_grad()
def decoder_pictures(
    model: Loci, source: Source, *, clips: int = 3, seed: int = 0, scene: Tensor | None = None, device: str = "cpu"
) -> Pixels:
    """A frame in the middle of each clip, its prediction, and the prediction with noise on each part of the code."""
    rows = []
    for clip in clips_in_batches(source, clips, batch=1, device=device):
        middle = clip.length // 2
        for t, (state, output) in enumerate(watch(model, clip, seed, scene=scene)):
            if t + 1 == middle:
                key = random.fold(keys_of(clip, seed)[0], "decoder lesion")
                painted = [model.paint(altered(output.code, part, key), state.background)[0][0] for part in PARTS]
                frames = (clip.frames[0, middle], output.frame[0], *painted)
                rows.append([figures.pixels(frame) for frame in frames])
                break
    return figures.strip(rows, ("truth", "predicted", *PARTS), tall=figures.TALL)


@torch.no_grad()
def imagined_pictures(
    model: Loci, source: Source, *, given: int = 10, steps: int = 10, seed: int = 0, device: str = "cpu"
) -> Pixels:
    """The closed loop of one sequence: undisturbed, then painted with noise on size, Gestalt and place."""
    parts = ("size", "Gestalt", "position")
    (clip,) = clips_in_batches(source, 1, labels=False, device=device)
    key = random.fold(keys_of(clip, seed)[0], "decoder lesion")
    black = torch.zeros(1, 3, *model.size, device=device) if clip.background is None else clip.background[:, 0] / 255
    rows: list[list[Pixels]] = [[] for _ in range(1 + len(parts))]
    for output in forecast(model, clip, seed, given, steps):
        rows[0].append(figures.pixels(output.frame[0]))
        for row, part in zip(rows[1:], parts, strict=True):
            row.append(figures.pixels(model.paint(altered(output.code, part, key), black)[0][0]))
    return figures.strip(rows, [f"t={given + 1 + n}" for n in range(steps)], ("undisturbed", *parts))
