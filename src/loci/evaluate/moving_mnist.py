"""Moving MNIST (Table 2): some frames are given, then a model runs in closed loop for a hundred.

The paper does not say whether a column T of its table is a mean over the predicted frames 1 to T or the value at frame
T alone; both are reported. T counts predicted frames, the first one after those given. Squared error is summed over the
pixels of one channel, SSIM has a Gaussian window of 11 pixels and a data range of 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from loci.data.source import Source
from loci.evaluate import figures, metrics, paper
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, Forecaster, clips_in_batches, forecast, silent

GIVEN = 10
STEPS = 100
COUNT = 10_000
SHOWN = (1, 2, 3, 5, 7, 9, 11, 14, 17, 20, 24, 28, 33, 39, 49, 59, 69, 79, 91)
"""Predicted frames in the strip, as in the paper's figure."""
_STRIPS = 3


class Curves:
    """Squared error and SSIM of every predicted frame, summed as sequences come in."""

    def __init__(self, steps: int) -> None:
        self.total = {name: torch.zeros(steps, dtype=torch.float64) for name in ("mse", "ssim")}
        self.square = torch.zeros(steps, dtype=torch.float64)
        self.count = 0

    def add(self, predicted: Tensor, truth: Tensor, at: int) -> None:
        """Frames [B,T,3,H,W] from predicted frame `at` on; their three channels are equal, so one is scored."""
        predicted, truth = predicted[:, :, :1].float().clamp(0, 1), truth[:, :, :1]
        span = slice(at, at + predicted.shape[1])
        error = metrics.mse(predicted, truth).double().cpu()
        self.total["mse"][span] += error.sum(0)
        self.square[span] += error.square().sum(0)
        self.total["ssim"][span] += metrics.ssim(predicted, truth).double().sum(0).cpu()
        self.count += predicted.shape[0] if at == 0 else 0

    def mean(self, name: str) -> Tensor:
        """The measure at each predicted frame."""
        return self.total[name] / self.count

    def doubt(self) -> Tensor:
        """The standard error of the squared error at each predicted frame."""
        variance = (self.square / self.count - self.mean("mse").square()).clamp(min=0)
        return (variance / max(self.count - 1, 1)).sqrt()


@torch.inference_mode()
def predict(
    model: Forecaster,
    source: Source,
    *,
    count: int = COUNT,
    given: int = GIVEN,
    steps: int = STEPS,
    seed: int = 0,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> tuple[Curves, list[list[Pixels]]]:
    """Score a model; also return rows of pictures, truth and prediction by turns, of the first sequences."""
    curves = Curves(steps)
    rows: list[list[Pixels]] = []
    columns = [n for n in SHOWN if n <= steps]
    for clip in clips_in_batches(source, count, batch=batch, labels=False, device=device, advance=advance):
        kept = min(_STRIPS - len(rows) // 2, clip.batch) if len(rows) < 2 * _STRIPS else 0
        parts, at = [], 0
        for outputs in forecast(model, clip, seed, given, steps):
            length = outputs.frame.shape[1]
            curves.add(outputs.frame, clip.frames[:, given + at : given + at + length], at)
            parts.append(outputs.frame[:kept])
            at += length
        shown = torch.cat(parts, 1) if kept else None
        for b in range(kept):
            rows.append([figures.pixels(clip.frames[b, given + n - 1]) for n in columns])
            rows.append([figures.pixels(shown[b, n - 1]) for n in columns])  # type: ignore[index]
    return curves, rows


def evaluate(
    models: Mapping[str, Forecaster],
    source: Source,
    *,
    count: int = COUNT,
    given: int = GIVEN,
    steps: int = STEPS,
    seed: int = 0,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Report:
    """Score several models on the same sequences, beside the paper's figures."""
    scored = {
        name: predict(
            model, source, count=count, given=given, steps=steps, seed=seed, batch=batch, device=device, advance=advance
        )
        for name, model in models.items()
    }
    curves = {name: result[0] for name, result in scored.items()}
    facts: dict[str, Entry] = {"sequences": min(count, len(source)), "given": given, "predicted": steps, "seed": seed}
    return Report(
        "moving-mnist",
        facts,
        _tables(curves, steps),
        {"strip": _strip(scored, steps), "curves": _picture(curves)},
        {f"{name} {kind}": c.mean(kind).tolist() for name, c in curves.items() for kind in ("mse", "ssim")},
    )


def _tables(curves: Mapping[str, Curves], steps: int) -> tuple[Table, Table]:
    """One of squared errors and one of SSIM: the paper's models, then ours in both readings of T."""
    horizons = [T for T in paper.HORIZONS if steps >= T]
    doubts = "; ".join(
        f"{name} {curve.doubt()[0].item():.2g} at T=1, {curve.doubt()[-1].item():.2g} at T={steps}"
        for name, curve in curves.items()
    )
    notes = {"mse": f" Standard errors of ours: {doubts}.", "ssim": ""}
    told = {"mse": paper.MOVING_MNIST_MSE, "ssim": paper.MOVING_MNIST_SSIM}
    tables = []
    for kind, title in (("mse", "MSE"), ("ssim", "SSIM")):
        rows: list[tuple[Entry, ...]] = [
            (f"{name} (paper)", "not said", *values[: len(horizons)]) for name, values in told[kind].items()
        ]
        for name, curve in curves.items():
            at = metrics.at_horizons(curve.mean(kind)[None], horizons)
            rows.append((name, "mean over 1…T", *(at[T].mean.item() for T in horizons)))
            rows.append((name, "value at T", *(at[T].last.item() for T in horizons)))
        note = f"Paper: {paper.MOVING_MNIST}. T counts predicted frames.{notes[kind]}"
        header = ("model", "reading of T", *(f"T={T}" for T in horizons))
        tables.append(Table(f"Moving MNIST in closed loop, {title}", header, tuple(rows), note))
    return tables[0], tables[1]


def _strip(scored: Mapping[str, tuple[Curves, list[list[Pixels]]]], steps: int) -> Pixels:
    """For each sequence the truth, then every model's prediction."""
    rows, names = [], []
    first = next(iter(scored.values()))[1]
    for n in range(len(first) // 2):
        rows.append(first[2 * n])
        names.append("truth")
        for name, (_, pictures) in scored.items():
            rows.append(pictures[2 * n + 1])
            names.append(name)
    return figures.strip(rows, [f"+{n}" for n in SHOWN if n <= steps], names)


def _picture(curves: Mapping[str, Curves]) -> Pixels:
    def draw(*axes: object) -> None:
        for ax, kind in zip(axes, ("mse", "ssim"), strict=True):
            values = {name: (range(1, len(c.mean(kind)) + 1), c.mean(kind).tolist()) for name, c in curves.items()}
            figures.lines(ax, values, title=kind.upper(), x="predicted frame")

    return figures.figure(draw, columns=2)
