"""Tracks as tables: a tidy CSV, and the MOTChallenge format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loci.track.atomic import atomic
from loci.track.tracker import Tracked

Write = Callable[[Tracked], None]

COLUMNS = ("frame", "time", "id", "row", "column", "size", "order", "visible", "left", "top", "width", "height")


@contextmanager
def tracks_csv(path: Path) -> Iterator[Write]:
    """One line for each object and frame from the one it was found in, hidden or not; all lengths in pixels."""
    with atomic(path) as part, part.open("w", encoding="ascii") as file:
        file.write(",".join(COLUMNS) + "\n")

        def write(frame: Tracked) -> None:
            for n in range(len(frame.ids)):
                row, column = frame.positions[n]
                left, top, width, height = frame.boxes[n]
                file.write(
                    f"{frame.index},{frame.time:.4f},{frame.ids[n]},{row:.2f},{column:.2f},{frame.sizes[n]:.2f},"
                    f"{frame.order[n]},{frame.visible[n]:.4f},{left:.2f},{top:.2f},{width:.2f},{height:.2f}\n"
                )

        yield write


@contextmanager
def mot_txt(path: Path) -> Iterator[Write]:
    """MOTChallenge: frame and id from 1, the box, the visible share as confidence; a hidden object has no line."""
    with atomic(path) as part, part.open("w", encoding="ascii") as file:

        def write(frame: Tracked) -> None:
            for n in range(len(frame.ids)):
                if frame.seen[n]:
                    left, top, width, height = frame.boxes[n]
                    file.write(
                        f"{frame.index + 1},{frame.ids[n]},{left:.2f},{top:.2f},{width:.2f},{height:.2f},"
                        f"{frame.visible[n]:.4f},-1,-1,-1\n"
                    )

        yield write
