"""How a run's scores went, against updates and against minutes: from its metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loci.errors import UserError
from loci.evaluate import figures
from loci.evaluate.report import Entry, Pixels, Report, Table

METRICS = "metrics.jsonl"
SHOWN = (("held_out", "squared_error"), ("held_out", "l2_object"), ("train", "position"), ("held_out", "visible"))
"""What is drawn, if a run has it. Position change tells whether identities hold, which the loss does not."""
MOMENTS = (0.0, 0.1, 0.5, 1.0)
"""Shares of the run for which the table has a column; the first is the first line written."""


@dataclass(frozen=True)
class Curve:
    """A measure over a run."""

    updates: tuple[float, ...]
    minutes: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, share: float) -> float:
        """The value nearest to this share of the run."""
        wanted = share * self.updates[-1]
        return self.values[min(range(len(self.values)), key=lambda n: abs(self.updates[n] - wanted))]


def read(run: Path) -> dict[tuple[str, str], Curve]:
    """Every measure of a run, by kind (train, held_out) and name; a line that a crash cut off is passed over."""
    path = run / METRICS
    if not path.is_file():
        raise UserError(f"{run} is no run's folder: it has no {METRICS}")
    lines: list[dict[str, Any]] = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    if not lines:
        raise UserError(f"{path} has nothing in it yet")
    timed = sorted((line["step"], line["seconds"] / 60) for line in lines if "seconds" in line)
    steps, minutes = zip(*timed, strict=True) if timed else ((0,), (float("nan"),))
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for line in lines:
        # Held-out lines have no clock: theirs is that of the training lines around.
        when = line["seconds"] / 60 if "seconds" in line else float(np.interp(line["step"], (0, *steps), (0, *minutes)))
        for name, value in line.items():
            if name not in ("step", "kind", "seconds") and isinstance(value, int | float):
                found.setdefault((line["kind"], name), []).append((line["step"], when, value))
    return {key: Curve(*(tuple(map(float, row)) for row in zip(*rows, strict=True))) for key, rows in found.items()}


def report(runs: Mapping[str, Path]) -> Report:
    """Some runs side by side, by name."""
    curves = {name: read(folder) for name, folder in runs.items()}
    shown = [key for key in SHOWN if any(key in of for of in curves.values())]
    rows: list[tuple[Entry, ...]] = []
    for name, of in curves.items():
        rows += [(name, f"{kind} {what}", *(curve.at(m) for m in MOMENTS)) for (kind, what), curve in of.items()]
    header = ("run", "measure", "first", *(f"at {share:.0%}" for share in MOMENTS[1:]))
    facts: dict[str, Entry] = {}
    for name, of in curves.items():
        last = max(of.values(), key=lambda curve: curve.updates[-1])
        facts |= {f"updates of {name}": int(last.updates[-1]), f"minutes of {name}": last.minutes[-1]}
    numbers = {
        f"{name} {kind} {what} {axis}": list(getattr(curve, axis))
        for name, of in curves.items()
        for (kind, what), curve in of.items()
        if (kind, what) in shown
        for axis in ("updates", "minutes", "values")
    }
    pictures = {"curves": _picture(curves, shown)} if shown else {}
    return Report("learning", facts, (Table("Learning", header, tuple(rows)),), pictures, numbers)


def _picture(curves: Mapping[str, Mapping[tuple[str, str], Curve]], shown: list[tuple[str, str]]) -> Pixels:
    """A column for each measure: above over updates, below over minutes."""

    def draw(*axes: Any) -> None:
        for number, axis in enumerate(("updates", "minutes")):
            for ax, key in zip(axes[number * len(shown) :], shown, strict=False):
                named = {name: (getattr(of[key], axis), of[key].values) for name, of in curves.items() if key in of}
                figures.lines(ax, named, title=" ".join(key).replace("_", " "), x=axis)
                if all(value > 0 for _, values in named.values() for value in values):
                    ax.set_yscale("log")

    return figures.figure(draw, columns=len(shown), rows=2, size=(3.6, 2.7))
