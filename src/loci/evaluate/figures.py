"""Pictures of results, as arrays: strips of frames, masks in colour, curves with bands, grids of numbers.

Colours are those of Okabe and Ito, which colour-blind people can tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loci.evaluate.metrics import unit
from loci.evaluate.report import Pixels

INKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GAP = 2
_LABEL = 14
TALL = 120
"""Pixels of height below which scenes with several objects are hard to make out."""


def pixels(frame: Tensor) -> Pixels:
    """A frame [3,H,W], uint8 or in [0,1], as a picture [H,W,3]."""
    scaled = (unit(frame).clamp(0, 1) * 255).round().to(torch.uint8)
    return np.ascontiguousarray(scaled.permute(1, 2, 0).cpu().numpy())


def slot_colours(count: int) -> Pixels:
    """A colour for each slot [count,3], as far apart in hue as can be."""
    hue = (np.arange(count) * 180 / max(count, 1)).astype(np.uint8)
    hsv = np.stack([hue, np.full_like(hue, 220), np.full_like(hue, 255)], -1)[None]
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0], np.uint8)


def tinted(frame: Tensor, masks: Tensor) -> Pixels:
    """A frame [3,H,W] with the slots' masks [K+1,H,W] (the background last) laid over it in colour."""
    colours = torch.from_numpy(slot_colours(masks.shape[0] - 1).astype(np.float32) / 255).to(masks.device)
    slots = masks[:-1].float()
    paint = torch.einsum("khw,kc->chw", slots, colours)
    share = 0.6 * slots.sum(0).clamp(0, 1)
    return pixels(unit(frame) * (1 - share) + 0.6 * paint)


def marked(picture: Pixels, ring: Tensor, cross: Tensor) -> Pixels:
    """A picture with a ring where something is said to be and a cross where it is; (row, column) in [-1,1] each."""
    drawn = picture.copy()
    places = []
    for place in (ring, cross):
        row, column = ((value + 1) / 2 * (n - 1) for value, n in zip(place.tolist(), picture.shape[:2], strict=True))
        places.append((round(column), round(row)))
    radius = max(2, min(picture.shape[:2]) // 24)
    cv2.circle(drawn, places[0], radius, (255, 255, 255), 1, cv2.LINE_AA)
    cv2.drawMarker(drawn, places[1], (255, 0, 0), cv2.MARKER_TILTED_CROSS, radius, 1, cv2.LINE_AA)
    return drawn


def enlarged(picture: Pixels, tall: int) -> Pixels:
    """By a whole number, to at least so many pixels of height."""
    times = max(1, -(-tall // picture.shape[0]))
    return picture.repeat(times, 0).repeat(times, 1)


def strip(
    rows: Sequence[Sequence[Pixels]], columns: Sequence[str] = (), names: Sequence[str] = (), *, tall: int = 0
) -> Pixels:
    """Rows of pictures of one size on white, with a label over each column and a name beside each row.

    Pictures of less than `tall` pixels' height are enlarged by a whole number.
    """
    rows = [[enlarged(picture, tall) for picture in row] for row in rows]
    height, width = rows[0][0].shape[:2]
    left = max((_text_width(name) for name in names), default=0) + (2 * _GAP if names else 0)
    top = _LABEL if columns else 0
    page = np.full((top + len(rows) * (height + _GAP), left + len(rows[0]) * (width + _GAP), 3), 255, dtype=np.uint8)
    for c, label in enumerate(columns):
        _write(page, label, left + c * (width + _GAP), _LABEL - 4)
    for r, row in enumerate(rows):
        y = top + r * (height + _GAP)
        if names:
            _write(page, names[r], _GAP, y + height // 2 + 4)
        for c, picture in enumerate(row):
            x = left + c * (width + _GAP)
            page[y : y + height, x : x + width] = picture
    return page


def _text_width(text: str) -> int:
    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.35, 1)[0][0])


def _write(page: Pixels, text: str, x: int, y: int) -> None:
    cv2.putText(page, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 0.35, (0, 0, 0), 1, cv2.LINE_AA)


def figure(
    draw: Callable[..., None], *, columns: int = 1, rows: int = 1, size: tuple[float, float] = (5, 3.4)
) -> Pixels:
    """What `draw` puts on a figure's axes, given one after the other, as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=110, layout="constrained")
    canvas = FigureCanvasAgg(page)
    draw(*page.subplots(rows, columns, squeeze=False).flatten())
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])


def lines(
    axes: Any, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, title: str, x: str, y: str = ""
) -> None:
    """Named curves on one pair of axes."""
    for number, (name, (across, up)) in enumerate(curves.items()):
        axes.plot(across, up, label=name, color=INKS[number % len(INKS)], linewidth=1.6)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend(fontsize=8)


def band(axes: Any, across: Sequence[float], low: Sequence[float], high: Sequence[float], opacity: float) -> None:
    """A shaded range around a curve of the first colour."""
    axes.fill_between(across, low, high, color=INKS[0], alpha=opacity, linewidth=0)


def counts(axes: Any, across: Sequence[float], number: Sequence[float]) -> None:
    """How often each came up, as a green area with its own scale on the right."""
    right = axes.twinx()
    right.fill_between(across, 0, number, color=INKS[2], alpha=0.2, linewidth=0)
    right.set(ylabel="count", ylim=(0, None))


def grid(axes: Any, values: NDArray[np.float64], ticks: Sequence[float], *, title: str, x: str, y: str) -> None:
    """A square of numbers as shades, the first row at the bottom."""
    shade = axes.imshow(values, origin="lower", cmap="viridis", aspect="equal")
    places = range(0, len(ticks), max(1, len(ticks) // 5))
    axes.set_xticks(list(places), [f"{ticks[p]:.1f}" for p in places])
    axes.set_yticks(list(places), [f"{ticks[p]:.1f}" for p in places])
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.figure.colorbar(shade, ax=axes, shrink=0.8)
