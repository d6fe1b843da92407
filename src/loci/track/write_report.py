"""A page that shows a tracked video: one file that needs nothing else."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from loci.track.atomic import atomic
from loci.track.clock import Clock
from loci.track.draw import COLOURS, closeup, colour, zoom
from loci.track.tracker import Tracked
from loci.track.write_tables import Write

Pixels = NDArray[np.uint8]

BINS = 400  # columns of the timeline at least; twice as many at most
EMBED = 16 * 2**20  # bytes; a larger overlay is linked instead of being put inside
_SIDE = 96
ROW = 18
"""Pixels of a row of the timeline."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #223; }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em; border-bottom: 1px solid #ccd }
video, img.wide { max-width: 100%; background: #111 } video { width: 100%; max-height: 85vh }
img.wide { min-width: 20em }
.line { display: flex; gap: .5em } .line div { line-height: ROWpx; font-size: 12px; text-align: right }
.axis { display: flex; justify-content: space-between; font-size: 12px; padding-left: 1.7em }
.line img { flex: 1; min-width: 0; image-rendering: pixelated }
table { border-collapse: collapse } td, th { padding: .15em 1em .15em 0; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.tiles { display: flex; flex-wrap: wrap; gap: 1em } figure { margin: 0; border-top: 4px solid; padding-top: .3em }
figcaption { font-size: .85em } img.pixels { image-rendering: pixelated }
"""


class Timeline:
    """How much of each id was seen, over time, in a bounded number of bins that merge as the video goes on."""

    def __init__(self) -> None:
        self.width = 1
        self.length = 0
        self.bins: list[dict[int, float]] = []
        self.hues: dict[int, int] = {}
        self.end = 0.0

    def add(self, frame: Tracked) -> None:
        """One more frame."""
        if self.length % self.width == 0:
            if len(self.bins) == 2 * BINS:
                pairs = zip(self.bins[::2], self.bins[1::2], strict=True)
                self.bins = [{k: a.get(k, 0.0) + b.get(k, 0.0) for k in a | b} for a, b in pairs]
                self.width *= 2
            self.bins.append({})
        for known, hue, share in zip(frame.ids.tolist(), frame.hues.tolist(), frame.visible.tolist(), strict=True):
            self.bins[-1][known] = self.bins[-1].get(known, 0.0) + share
            self.hues[known] = hue
        self.length, self.end = self.length + 1, frame.time

    def draw(self) -> Pixels:
        """[ROW·ids, bins, 3]: a row for each id, bright in its colour where it was in full view."""
        rows = []
        for known in sorted(self.hues):
            share = np.array([each.get(known, -1.0) / self.width for each in self.bins])
            paint = COLOURS[self.hues[known] % len(COLOURS)].astype(float)
            bright = np.clip(share, 0, 1)[:, None] * 0.85 + 0.15
            row = np.where(share[:, None] < 0, 250.0, 255 - bright * (255 - paint))
            rows.append(np.repeat(row[None], ROW - 4, 0))
            rows.append(np.full((4, len(self.bins), 3), 255.0))
        return np.concatenate(rows or [np.full((1, max(1, len(self.bins)), 3), 255.0)], 0).astype(np.uint8)


class Portraits:
    """For each id, the picture of the frame where most of it was seen."""

    def __init__(self) -> None:
        self.best: dict[int, tuple[float, int, int, Pixels, Pixels]] = {}

    def add(self, frame: Tracked) -> None:
        """Keep what is clearly better than before."""
        for n, known in enumerate(frame.ids.tolist()):
            share = float(frame.visible[n])
            if frame.seen[n] and share > self.best.get(known, (-1.0,))[0] + 0.02:
                hue = int(frame.hues[n])
                self.best[known] = (share, frame.index, hue, _crop(frame, n), closeup(frame, n, zoom(frame, n), _SIDE))

    def figures(self) -> str:
        """As HTML."""
        parts = []
        for known, (share, index, hue, seen, painted) in sorted(self.best.items()):
            red, green, blue = colour(hue)
            parts.append(
                f'<figure style="border-color: rgb({red},{green},{blue})">{image(seen, "pixels")} '
                f"{image(painted, 'pixels')}<figcaption><b>{known}</b> at frame {index}, seen {share:.0%}"
                "</figcaption></figure>"
            )
        return f'<div class="tiles">{"".join(parts)}</div>' if parts else "<p>No slot has claimed an object.</p>"


def _crop(frame: Tracked, n: int) -> Pixels:
    """The video around an object's box, a little wider, square."""
    left, top, width, height = frame.boxes[n]
    half = max(4, int(0.65 * max(width, height)))
    row, column = int(top + height / 2), int(left + width / 2)
    padded = np.pad(frame.pixels, ((half, half), (half, half), (0, 0)), mode="edge")
    return np.asarray(cv2.resize(padded[row : row + 2 * half, column : column + 2 * half], (_SIDE, _SIDE)), np.uint8)


def png(pixels: Pixels) -> str:
    """A picture as a data address."""
    data = cv2.imencode(".png", np.ascontiguousarray(pixels[..., ::-1]))[1].tobytes()
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def image(pixels: Pixels, kind: str = "") -> str:
    """A picture inside the page."""
    return f'<img class="{kind}" src="{png(pixels)}" alt="">'


def movie(path: Path, page: Path) -> str:
    """A video inside the page, or a link to it where it is large."""
    if not path.is_file():
        return ""
    if path.stat().st_size <= EMBED:
        source = "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    else:
        source = html.escape(Path(os.path.relpath(path, page.parent)).as_posix())
    return f'<video controls loop muted preload="auto" src="{source}"></video>'


def table(rows: Mapping[str, object]) -> str:
    """Names and values."""
    cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table>{''.join(cells)}</table>"


def page(title: str, body: str) -> str:
    """A whole document."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE.replace('ROW', str(ROW))}</style><h1>{html.escape(title)}</h1>{body}</html>\n"
    )


def _axis(end: float) -> str:
    """Seconds below the timeline, at its quarters."""
    marks = "".join(f"<span>{end * quarter / 4:.1f} s</span>" for quarter in range(5))
    return f'<div class="axis">{marks}</div>'


def speeds(clock: Clock, frames: int) -> dict[str, str]:
    """Frames a second, and what each stage takes of the time."""
    spent = {name: seconds for name, seconds in clock.spent.items() if name != "background"}
    whole = sum(spent.values())
    if not (frames and whole):
        return {}
    shares = {
        name: f"{seconds / whole:.0%}, {1000 * seconds / frames:.1f} ms a frame" for name, seconds in spent.items()
    }
    return {"frames a second": f"{frames / whole:.1f}"} | shares


@contextmanager
def report_html(path: Path, settings: Mapping[str, object], background: Pixels, clock: Clock, overlay: Path,
                notes: list[str]) -> Iterator[Write]:  # fmt: skip
    """Overlay, timeline, objects, background, settings and speed. Enter it before the overlay, so that it ends after.

    Args:
        path: the file.
        settings: what was tracked with what.
        background: the picture of the scene without objects.
        clock: how long everything took, read at the end.
        overlay: the video to show, if it is there at the end.
        notes: what went wrong, read at the end.
    """
    timeline, portraits = Timeline(), Portraits()

    def write(frame: Tracked) -> None:
        timeline.add(frame)
        portraits.add(frame)

    with atomic(path) as part:
        yield write
        ids = "<br>".join(map(str, sorted(timeline.hues)))
        said = "".join(f"<p><b>{html.escape(note)}</b></p>" for note in notes)
        height = max(ROW * len(timeline.hues), 1)
        chart = f'<img style="height:{height}px" src="{png(timeline.draw())}" alt="">'
        chart = f'<div class="line"><div>{ids}</div>{chart}</div>{_axis(timeline.end)}'
        part.write_text(
            page(
                f"loci: {settings.get('video', '')}",
                f"{said}{movie(overlay, path)}<h2>When each object was seen</h2>"
                f"<p>One row for each id; {timeline.length} frames from left to right. Pale is hidden, white is not "
                f"found yet or let go.</p>{chart}<h2>Objects</h2><p>The video, and what the slot paints.</p>"
                f"{portraits.figures()}<h2>Background</h2>{image(background, 'wide')}<h2>Settings</h2>"
                f"{table(settings)}<h2>Speed</h2>{table(speeds(clock, timeline.length))}",
            ),
            encoding="utf-8",
        )
