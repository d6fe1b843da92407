"""Moving MNIST (Table 2): some frames are given, then a model runs in closed loop for a hundred.

The paper does not say whether a column T of its table is a mean over the predicted frames 1 to T or the value at frame
T alone; both are reported. T counts predicted frames, the first one after those given. Squared error is summed over the
pixels of one channel, SSIM has a Gaussian window of 11 pixels and a data range of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loci.data.source import Source
from loci.evaluate import figures, metrics, paper
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, Forecaster, clips_in_batches, forecast, quickened, silent

GIVEN = 10
STEPS = 100
COUNT = 10_000
SHOWN = (1, 2, 3, 5, 7, 9, 11, 14, 17, 20, 24, 28, 33, 39, 49, 59, 69, 79, 91, 100)
"""Predicted frames in the strip: those of the paper's figure, and the last."""
_STRIPS = 3


class Curves:
    """Squared error and SSIM of every predicted frame, summed as sequences come in."""

    def __init__(self, steps: int, device: torch.device | str = "cpu") -> None:
        # Sums stay on the device: asking a GPU for a number of every frame would stop it that often.
        self.total = {name: torch.zeros(steps, dtype=torch.float64, device=device) for name in ("mse", "ssim")}
        self.square = torch.zeros(steps, dtype=torch.float64, device=device)
        self.count = 0

    def add(self, predicted: Tensor, truth: Tensor, at: int) -> None:
        """Predicted frame number `at` of some sequences [B,3,H,W]; its channels are equal, so one is scored."""
        predicted, truth = predicted[:, :1].float().clamp(0, 1), truth[:, :1]
        error = metrics.mse(predicted, truth).double()
        self.total["mse"][at] += error.sum()
        self.square[at] += error.square().sum()
        self.total["ssim"][at] += metrics.ssim(predicted, truth).double().sum()
        self.count += predicted.shape[0] if at == 0 else 0

    def mean(self, name: str) -> Tensor:
        """The measure at each predicted frame."""
        return self.total[name].cpu() / self.count

    def doubt(self) -> Tensor:
        """The standard error of the squared error at each predicted frame."""
        variance = (self.square.cpu() / self.count - self.mean("mse").square()).clamp(min=0)
        return (variance / max(self.count - 1, 1)).sqrt()


class Black:
    """A forecaster that says that there is nothing: what has learned anything does better."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size

    def start(
        self, batch: int = 1, background: Tensor | None = None, *, seed: int = 0, keys: Tensor | None = None
    ) -> Nothing:
        """No picture yet."""
        return Nothing(torch.zeros(batch, 3, *self.size, device=None if keys is None else keys.device))

    def bootstrap(self, frame: Tensor, state: Nothing) -> Nothing:
        """Nothing to get ready."""
        return state

    def step(self, frame: Tensor, state: Nothing) -> tuple[Nothing, Nothing]:
        """Black."""
        return state, state

    def imagine(self, state: Nothing, steps: int) -> tuple[Nothing, Nothing]:
        """Black."""
        return state, Nothing(state.frame[:, None].expand(-1, steps, -1, -1, -1))


class Nothing(NamedTuple):
    """A black frame."""

    frame: Tensor


@torch.no_grad()
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
    curves = Curves(steps, device)
    rows: list[list[Pixels]] = []
    options: dict[str, Any] = {"batch": batch, "labels": False, "device": device}
    eyes = quickened(model, source, count, given + steps, **options)
    for clip in clips_in_batches(source, count, model=model, advance=advance, **options):
        kept = min(_STRIPS - len(rows) // 2, clip.batch) if len(rows) < 2 * _STRIPS else 0
        pairs: list[list[Pixels]] = [[] for _ in range(2 * kept)]
        for n, output in enumerate(forecast(eyes, clip, seed, given, steps)):
            truth = clip.frames[:, given + n]
            curves.add(output.frame, truth, n)
            for b in range(kept if n + 1 in SHOWN else 0):
                pairs[2 * b].append(figures.pixels(truth[b]))
                pairs[2 * b + 1].append(figures.pixels(output.frame[b]))
        rows += pairs
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
    shown = {name: result for name, result in scored.items() if not isinstance(models[name], Black)}
    seen = min(curve.count for curve in curves.values())
    facts: dict[str, Entry] = {"sequences": seen, "given": given, "predicted": steps, "seed": seed}
    return Report(
        "moving-mnist",
        facts,
        _tables(curves, steps),
        {"strip": _strip(shown, steps), "curves": _picture(curves)},
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
