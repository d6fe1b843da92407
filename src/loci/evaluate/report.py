"""What an experiment leaves behind: tables as Markdown and JSON, pictures as PNG."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from loci.track.atomic import atomic, writable_folder

Pixels = NDArray[np.uint8]
Entry = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Named columns; an entry of None is a figure that nobody has given."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} entries under {len(self.header)} names")

    def markdown(self) -> str:
        """As a Markdown table with its title and note."""
        lines = [f"### {self.title}", "", _line(self.header), _line(["---"] * len(self.header))]
        lines += [_line([shown(entry) for entry in row]) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else [])]) + "\n"

    def plain(self) -> dict[str, Any]:
        """As JSON values; a number that is none becomes null."""
        rows = [[_plain(entry) for entry in row] for row in self.rows]
        return {"title": self.title, "header": list(self.header), "rows": rows, "note": self.note}


@dataclass(frozen=True)
class Report:
    """The outcome of one experiment.

    Attributes:
        name: Of the files it is saved in.
        facts: What was evaluated and how: network, source, how many clips, seed.
        tables: In the order in which they are to be read.
        pictures: [H,W,3] RGB, by name.
        curves: Longer rows of numbers, for the JSON alone.
    """

    name: str
    facts: Mapping[str, Entry]
    tables: tuple[Table, ...]
    pictures: Mapping[str, Pixels] = field(default_factory=dict)
    curves: Mapping[str, list[float]] = field(default_factory=dict)

    def markdown(self) -> str:
        """Facts, tables and pictures as a page."""
        facts = ", ".join(f"{name} {shown(value)}" for name, value in self.facts.items())
        pictures = [f"![{name}]({self._file(name)})\n" for name in self.pictures]
        return "\n".join([f"## {self.name}\n", f"{facts}\n", *(table.markdown() for table in self.tables), *pictures])

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.md, NAME.json and the pictures; return where they are."""
        writable_folder(folder)
        content = {
            "name": self.name,
            "facts": {name: _plain(value) for name, value in self.facts.items()},
            "tables": [table.plain() for table in self.tables],
            "curves": {name: [_plain(value) for value in values] for name, values in self.curves.items()},
        }
        written = {
            f"{self.name}.md": self.markdown().encode(),
            f"{self.name}.json": (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(),
            **{self._file(name): png(pixels) for name, pixels in self.pictures.items()},
        }
        for name, data in written.items():
            with atomic(folder / name) as part:
                part.write_bytes(data)
        return [folder / name for name in written]

    def _file(self, picture: str) -> str:
        return f"{self.name}-{picture}.png"


def png(pixels: Pixels) -> bytes:
    """A picture [H,W,3] RGB as the content of a PNG file."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"a picture is [H,W,3] of uint8, got {pixels.dtype} of shape {pixels.shape}")
    return bytes(cv2.imencode(".png", np.ascontiguousarray(pixels[..., ::-1]))[1].tobytes())


def shown(entry: Entry) -> str:
    """An entry as a table shows it: four digits are enough for anybody."""
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return "-"
    return f"{entry:.4g}" if isinstance(entry, float) else str(entry)


def _line(entries: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"


def _plain(entry: Entry) -> Entry:
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry
