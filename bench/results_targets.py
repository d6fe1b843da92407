"""The table at the head of docs/results.md: what is to be reached, and what was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    """A figure of the paper to be reached, and where ours stands."""

    what: str
    block: str
    table: str
    row: tuple[str | None, ...]
    """How the row begins; None is anything."""
    column: str
    limit: float
    below: bool

    def ours(self, kept: dict[str, Any], row: tuple[str | None, ...] | None = None) -> float | None:
        """Our figure, from what a block holds; or that of another row."""
        wanted_row = row or self.row
        for table in kept["tables"]:
            if table["title"].startswith(self.table) and self.column in table["header"]:
                for entries in table["rows"]:
                    if all(wanted in (None, entry) for wanted, entry in zip(wanted_row, entries, strict=False)):
                        value = entries[table["header"].index(self.column)]
                        return None if value is None else float(value)
        return None


def _digits(kind: str, limits: tuple[float, ...], below: bool) -> list[Target]:
    columns = ("T=10", "T=20", "T=30", "T=50", "T=100")
    return [
        Target(f"Moving MNIST {kind}, mean to {T}", "moving-mnist", f"Moving MNIST in closed loop, {kind}",
               (None, "mean over 1…T"), T, limit, below)
        for T, limit in zip(columns, limits, strict=True)
    ]  # fmt: skip


def _snitch(block: str, how: str, limits: tuple[float, float, float]) -> list[Target]:
    names = ("Top 1 (%)", "Top 5 (%)", "L1 (grid)")
    return [
        Target(f"CATER world, {how}: {name}", block, "Over the seeds", (name, "ours"), "mean", limit, "L1" in name)
        for name, limit in zip(names, limits, strict=True)
    ]


TARGETS = (
    *_digits("MSE", (30.7, 52.5, 98.3, 165.1, 221.2), True),
    *_digits("SSIM", (0.923, 0.881, 0.814, 0.720, 0.639), False),
    Target("Moving MNIST FG-ARI, frames without overlap", "digits-tracked", "Tracking",
           ("FG-ARI (frames without overlap)",), "value", 0.95, False),
    *_snitch("cater", "supervised", (90.7, 98.5, 0.14)),
    *_snitch("cater-unsupervised", "unsupervised", (78.4, 92.0, 0.45)),
)  # fmt: skip


def targets(folder: Path) -> str:
    """The paper's figures that are to be reached, beside ours: what the blocks' folders in this one hold."""
    lines = [
        "| target | paper | ours | reached | black frames | asked for | minutes, device |",
        "|---|---|---|---|---|---|---|",
    ]
    for target in TARGETS:
        path = folder / target.block / "tables.json"
        limit = f"{'≤' if target.below else '≥'} {target.limit}"
        kept = json.loads(path.read_text()) if path.is_file() else None
        value = None if kept is None else target.ours(kept)
        if kept is None or value is None:
            lines.append(f"| {target.what} | {limit} | not measured | | | | |")
            continue
        how = kept["about"]
        reached = "yes" if (value <= target.limit if target.below else value >= target.limit) else "no"
        where = f"{how['minutes']:.1f}, {how['device']}"
        nothing = target.ours(kept, ("black frames", *target.row[1:])) if target.row[0] is None else None
        black = "" if nothing is None else f" {nothing:.4g}"
        lines.append(f"| {target.what} | {limit} | {value:.4g} | {reached} |{black} | {how['asked']} | {where} |")
    return "\n".join(lines)
