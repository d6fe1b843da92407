"""How far off the snitch's place is, the longer it has been inside a container (appendix, fig:snitch_contained)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loci.data.clip import CARRIED, CONTAINED
from loci.evaluate import figures
from loci.evaluate.cater import Found
from loci.evaluate.metrics import Summary, summary
from loci.evaluate.metrics_permanence import Permanence
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.tracking import permanence_tables

MARKS = (1, 5, 10, 20, 30, 50, 75, 100, 150, 200, 250)
"""Durations shown in the table; the figure and the JSON have all."""


def contained_for(state: Tensor) -> Tensor:
    """Frames for which it has been contained without a break, [n,T], from states [n,T]; 0 while it is not."""
    inside = (state == CONTAINED) | (state == CARRIED)
    time = torch.arange(state.shape[1], device=state.device).expand(state.shape)
    last_outside = torch.where(inside, -1, time).cummax(1).values
    return torch.where(inside, time - last_outside, 0)


def curve(found: Found) -> dict[int, Summary]:
    """The distribution of the distance after 0, 1, 2, … frames of containment; every seed is an answer of its own.

    0 stands for all frames outside a container.
    """
    duration = contained_for(found.state)[:, 1:]
    distance = found.ahead()
    groups = {}
    for frames in duration.unique().tolist():
        values = distance[:, duration == frames]
        groups[int(frames)] = summary(values)
    return groups


def report(found: Found, name: str = "containment") -> Report:
    """The curve as table, figure and numbers."""
    groups = curve(found)
    header = ("frames contained", "answers", "median", "mean", "25%", "75%", "10%", "90%")
    rows: list[tuple[Entry, ...]] = []
    for frames in (0, *MARKS):
        if frames in groups:
            s = groups[frames]
            label = "not contained" if frames == 0 else frames
            rows.append((label, s.number, s.median, s.mean, s.low_25, s.high_75, s.low_10, s.high_90))
    inside = {frames: s for frames, s in groups.items() if frames}
    note = "Distance in the plane, a cell of CATER's grid is 1. The paper gives this as a figure, without numbers."
    curves = {"frames contained": [float(frames) for frames in inside]}
    curves |= {field: [float(getattr(s, field)) for s in inside.values()] for field in Summary._fields}
    facts: dict[str, Entry] = {"clips": found.world.shape[0], "seeds": found.said.shape[0]}
    table = Table("Error against the time the snitch has been contained", header, tuple(rows), note)
    held = () if found.permanence is None else slot_tables(found.permanence)
    return Report(name, facts, (table, *held), {"curve": picture(inside)} if inside else {}, curves)


def slot_tables(found: Permanence) -> tuple[Table, ...]:
    """Whether the snitch is still in its slot when a container lets it go, and where that slot was meanwhile."""
    out = torch.isin(found.back_from, torch.tensor([CONTAINED, CARRIED], dtype=found.back_from.dtype))
    again = found.back_same[out]
    share = again.double().mean().item() if len(again) else None
    missed = int(found.unheld.sum())
    frames = missed + len(found.state)
    rows: tuple[tuple[Entry, ...], ...] = (
        ("share of contained snitches still in their slot on release", share, len(again)),
        ("share of the snitch's frames in which no slot had ever had it", missed / max(frames, 1), frames),
    )
    note = (
        "A slot has the snitch from the last frame in which the two overlapped, until another does; it still has it "
        "if it is the first to overlap once the snitch is out. All seeds together."
    )
    first = Table("The snitch's slot", ("measure", "value", "of"), rows, note)
    return (first, *permanence_tables(found, "The snitch's slot"))


def picture(groups: dict[int, Summary]) -> Pixels:
    """Median and mean, bands of 75-25 and 90-10 in 100, and how often each duration came up."""
    frames = list(groups)

    values = {field: [getattr(s, field) for s in groups.values()] for field in Summary._fields}

    def draw(axes: Any) -> None:
        figures.band(axes, frames, values["low_10"], values["high_90"], 0.15)
        figures.band(axes, frames, values["low_25"], values["high_75"], 0.3)
        named = {name: (frames, values[name]) for name in ("median", "mean")}
        figures.lines(axes, named, title="Snitch contained", x="frames contained", y="L2 distance")
        figures.counts(axes, frames, values["number"])

    return figures.figure(draw, size=(7, 4))
