"""Labels drawn into frames, for people: a contact sheet and a video."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from loci.data.clip import ABSENT, STATES, VISIBLE, Clip
from loci.data.source import Source
from loci.data.write import whole
from loci.data.write_labels import attribute, things
from loci.data.write_video import write_video

Picture = NDArray[np.uint8]

_CELL = 320  # the width, in pixels, that a frame is brought to where it is smaller
_COLUMNS = 6
_EDGE = 64  # a gray line between pictures
_RATE = 24


def colour_of(thing: int) -> tuple[int, int, int]:
    """A bright colour for each number, far from its neighbours' (steps of the golden ratio around the wheel)."""
    red, green, blue = colorsys.hsv_to_rgb(thing * 0.61803 % 1, 0.75, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw(clip: Clip, source: Source, time: int) -> Picture:
    """A frame of the first clip with its labels, [H,W,3].

    Each object has an outline around its visible pixels, a thin one around all it would cover where some of that is
    hidden, a dot at its position, and its number, class and state (where that is not "visible").
    """
    scale = max(1, round(_CELL / clip.frames.shape[-1]))
    picture = _enlarge(clip.frames[0, time].permute(1, 2, 0).contiguous().numpy(), scale)
    for thing in things(clip):
        picture = _draw_thing(picture, clip, source, time, thing, scale)
    picture[-1], picture[:, -1] = _EDGE, _EDGE
    return picture


def _enlarge(picture: Picture, scale: int) -> Picture:
    return np.ascontiguousarray(picture.repeat(scale, 0).repeat(scale, 1))


def _draw_thing(picture: Picture, clip: Clip, source: Source, time: int, thing: int, scale: int) -> Picture:
    colour = colour_of(thing)
    share = 1.0 if clip.share is None else float(clip.share[0, time, thing])
    state = VISIBLE if clip.state is None else int(clip.state[0, time, thing])
    for masks, line in ((clip.whole, 1), (clip.visible, 2)):
        if masks is None or (masks is clip.whole and share > 0.98):
            continue
        mask = _enlarge(masks[0, time, thing, :, :, None].to(torch.uint8).numpy(), scale)
        outline, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(picture, outline, -1, colour, line)
    if clip.position is None or state == ABSENT:
        return picture
    height, width = clip.frames.shape[-2:]
    row, column = ((clip.position[0, time, thing] + 1) / 2 * torch.tensor([height - 1, width - 1])).tolist()
    at = (round((column + 0.5) * scale), round((row + 0.5) * scale))
    cv2.circle(picture, at, 3, colour, -1 if state == VISIBLE else 1)
    note = "" if state == VISIBLE else f" {STATES[state]}"
    return _text(picture, f"{thing} {_kind(clip, source, thing)}{note}", (at[0] + 5, at[1] - 5), colour)


def _kind(clip: Clip, source: Source, thing: int) -> str:
    known = [name for name in ("class", "shape") if name in clip.attributes]
    return (attribute(clip, source, known[0], thing) or "") if known else ""


def _text(picture: Picture, text: str, at: tuple[int, int], colour: tuple[int, int, int]) -> Picture:
    """Words that begin here, or as far to the left and down as it takes to see them whole."""
    (wide, high), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 3)
    at = (max(min(at[0], picture.shape[1] - wide), 0), max(at[1], high))
    for shade, line in (((0, 0, 0), 3), (colour, 1)):  # a dark rim keeps it legible on any ground
        picture = cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.4, shade, line, cv2.LINE_AA)
    return picture


def draw_all(clip: Clip, source: Source) -> Picture:
    """All frames of the first clip with their labels, [T,H,W,3]."""
    return np.stack([draw(clip, source, time) for time in range(clip.length)])


def _grid(pictures: list[Picture], columns: int) -> Picture:
    """Side by side in rows; the last row is filled up with black."""
    blank = np.zeros_like(pictures[0])
    filled = pictures + [blank] * (-len(pictures) % columns)
    rows = [np.concatenate(filled[n : n + columns], 1) for n in range(0, len(filled), columns)]
    return np.concatenate(rows, 0)


def write_sheet(path: Path, drawn: Sequence[Picture]) -> None:
    """A contact sheet of drawn clips [T,H,W,3] of one length: a row for each, from its first frame to its last."""
    last = len(drawn[0]) - 1
    count = min(_COLUMNS, last + 1)
    pictures = [clip[round(n * last / max(count - 1, 1))] for clip in drawn for n in range(count)]
    with whole(path) as part:
        part.write_bytes(cv2.imencode(".png", cv2.cvtColor(_grid(pictures, count), cv2.COLOR_RGB2BGR))[1].tobytes())


def write_drawn(path: Path, drawn: Sequence[Picture]) -> None:
    """An mp4 of drawn clips [T,H,W,3] of one length, in a square of pictures."""
    columns = math.ceil(len(drawn) ** 0.5)
    frames = np.stack([_grid(list(pictures), columns) for pictures in zip(*drawn, strict=True)])
    write_video(path, torch.from_numpy(frames).permute(0, 3, 1, 2), _RATE)
