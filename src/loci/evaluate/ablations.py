"""Ablations (appendix): the same run with one thing changed, compared by L2_object on held-out sequences.

A study is a list of arms, an arm a few changes to a config by name. Every arm sees as many frames as any other: with
back-propagation through a window of n frames an update takes n of them, so there are n times fewer updates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loci.config import FEATURES, Config, from_dict, to_dict
from loci.errors import UserError
from loci.evaluate import figures
from loci.evaluate.report import Entry, Pixels, Report, Table

METRICS = "metrics.jsonl"
_POINTS = 20
"""Evaluations on held-out sequences in a run."""

Train = Callable[[Config, Path], Any]


@dataclass(frozen=True)
class Arm:
    """A run of a study."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Values by the dotted path of their field."""
    window: int = 1
    """Frames in an update."""


STUDIES: dict[str, tuple[Arm, ...]] = {
    "ablations-cell": (Arm("GateL0RD"), Arm("LSTM", {"model.transition.cell": "lstm"})),
    "ablations-inputs": (
        Arm("all inputs"),
        *(Arm(f"without {feature.replace('_', ' ')}", {"model.zeroed": [feature]}) for feature in FEATURES),
    ),
    "ablations-losses": (
        Arm("all losses"),
        Arm("without object permanence", {"loss.object": 0.0}),
        Arm("without time persistence", {"loss.time": 0.0}),
        Arm("without position change", {"loss.position": 0.0}),
        Arm("without all three", {"loss.object": 0.0, "loss.time": 0.0, "loss.position": 0.0}),
    ),
    "ablations-credit": (
        Arm("e-prop"),
        *(
            Arm(f"BPTT over {window}", {"model.transition.credit": "bptt", "train.window": window}, window)
            for window in (1, 2, 3, 5, 10)
        ),
    ),
}
"""What the paper compares. It does not list the intervals of its BPTT runs beyond 1 and 3."""

FIGURES = {
    "ablations-cell": "fig:gatel0rd_vs_lstm",
    "ablations-inputs": "fig:input_ablations",
    "ablations-losses": "fig:loss_ablations",
    "ablations-credit": "fig:eprop_vs_bptt",
}


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """A config with values replaced by the dotted path of their field; strict, as any config is."""
    values = to_dict(config)
    for path, value in changes.items():
        *parents, name = path.split(".")
        place = values
        for parent in parents:
            place = place.get(parent, {})
        if name not in place:
            raise UserError(f"no field {path!r} in the config")
        place[name] = value
    return from_dict(Config, values)


def configs(name: str, base: Config, frames: int) -> dict[str, tuple[Arm, Config]]:
    """Every arm of a study and its config; `frames` is how many each sees."""
    if name not in STUDIES:
        raise UserError(f"no study {name!r}; choose from {', '.join(STUDIES)}")
    result = {}
    for arm in STUDIES[name]:
        updates = max(1, frames // arm.window)
        share = updates / base.train.total
        timing = {
            "train.updates": updates,
            "train.foreground": round(base.train.foreground * share),
            "train.growth": base.train.growth / share,
            "train.evaluate_every": max(1, updates // _POINTS),
            "train.picture_every": 0,
        }
        result[arm.name] = (arm, changed(base, {**timing, **arm.changes}))
    return result


def run(name: str, base: Config, out: Path, train: Train, *, frames: int, told: Callable[[int], Any]) -> Report:
    """Train every arm that is not there yet, and compare them.

    Args:
        name: Of the study.
        base: What all arms share.
        out: A folder for the runs.
        train: `loci.train`.
        frames: What every arm sees.
        told: Called with 1 after each arm.
    """
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for label, (arm, config) in configs(name, base, frames).items():
        folder = out / "runs" / label.replace(" ", "-")
        if not _finished(folder, config):
            train(config, folder)
        curves[label] = held_out(folder, arm.window)
        told(1)
    return report(name, curves, base, frames)


def _finished(folder: Path, config: Config) -> bool:
    """Whether a run of this length is there; one that was cut short is refused rather than compared."""
    if not (folder / METRICS).exists():
        return False
    updates = max((line["step"] for line in _lines(folder)), default=0)
    if updates < config.train.total:
        raise UserError(
            f"{folder} has a run of {updates} updates, {config.train.total} are asked for: "
            f"finish it with `loci train --resume {folder}`, remove it, or choose another --out"
        )
    return True


def _lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / METRICS).read_text()
    return [json.loads(line) for line in text.splitlines() if line]


def held_out(folder: Path, window: int) -> tuple[list[float], list[float]]:
    """Frames seen, and L2_object on held-out sequences, of a run."""
    lines = [line for line in _lines(folder) if line["kind"] == "held_out"]
    if not lines:
        raise UserError(
            f"{folder / METRICS} has no held-out evaluations: set train.evaluate_every to less than the run"
        )
    return [float(line["step"] * window) for line in lines], [float(line["l2_object"]) for line in lines]


def report(name: str, curves: Mapping[str, tuple[list[float], list[float]]], base: Config, frames: int) -> Report:
    """The arms' last and best error, and their curves."""
    first = next(iter(curves.values()))[1][-1]
    rows: list[tuple[Entry, ...]] = [
        (label, values[-1], min(values), values[-1] / first if first else None) for label, (_, values) in curves.items()
    ]
    header = ("arm", "L2_object at the end", "best", "against the first arm")
    note = (
        f"Paper: {FIGURES[name]}, a figure without numbers. L2_object is a mean over the pixels of held-out sequences; "
        "lower is better. One seed each."
    )
    facts: dict[str, Entry] = {"source": base.data.source, "frames seen": frames, "seed": base.train.seed}
    numbers = {f"{label}, {what}": list(pair[n]) for label, pair in curves.items() for n, what in enumerate(("x", "y"))}
    return Report(name, facts, (Table("L2_object", header, tuple(rows), note),), {"curves": picture(curves)}, numbers)


def picture(curves: Mapping[str, tuple[list[float], list[float]]]) -> Pixels:
    """L2_object over frames seen."""

    def draw(axes: Any) -> None:
        figures.lines(axes, curves, title="held-out L2_object", x="frames seen")
        axes.set_yscale("log")

    return figures.figure(draw, size=(7, 4.5))
