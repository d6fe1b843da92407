"""The overlay: what the network makes of a frame, drawn on it."""

from __future__ import annotations

from collections import deque

import cv2
import numpy as np
from numpy.typing import NDArray

from loci.track.tags import Tags, write
from loci.track.tracker import Tracked

Pixels = NDArray[np.uint8]

COLOURS = np.array(
    [(230, 60, 60), (60, 140, 255), (70, 200, 80), (255, 190, 20), (190, 90, 230), (40, 210, 210), (255, 130, 40),
     (250, 110, 190), (160, 220, 40), (120, 110, 255), (200, 150, 100), (0, 160, 120), (255, 240, 120), (160, 60, 110),
     (150, 200, 255), (110, 140, 40), (255, 170, 170), (90, 90, 200), (0, 220, 160), (170, 130, 60)],
    np.uint8,
)  # fmt: skip
"""One for each slot, far apart; a slot's colour never changes. From the 21st slot on they come again."""

TRAIL = 40  # frames
_DARK = 24


def colour(slot: int) -> tuple[int, int, int]:
    """The colour of a slot."""
    red, green, blue = (int(c) for c in COLOURS[slot % len(COLOURS)])
    return red, green, blue


def drawing_scale(size: tuple[int, int]) -> float:
    """How much larger (a whole number) or smaller than the video it is drawn, so that text can be read on it."""
    height, width = size
    if max(height, width) > 1280:
        return 1280 / max(height, width)
    return float(max(1, -(-400 // max(height, width, 1))))


class Drawer:
    """Draws frame after frame; remembers only the last positions of each id."""

    def __init__(self, size: tuple[int, int], slots: int) -> None:
        self.scale = drawing_scale(size)
        self.canvas = (round(size[0] * self.scale), round(size[1] * self.scale))
        self.line = max(1, round(max(self.canvas) / 500))
        self.font = float(np.clip(max(self.canvas) / 1400, 0.42, 0.8))
        self.slots = slots
        self.tile = max(40, min(112, self.canvas[1] // min(slots, 10)))
        self.across = max(1, self.canvas[1] // self.tile)
        self.trails: dict[int, deque[tuple[int, int]]] = {}
        self.zooms: dict[int, float] = {}

    def __call__(self, frame: Tracked) -> Pixels:
        """The frame with masks, outlines, centres and trails, and the strip of reconstructions below it."""
        picture = self._masks(frame)
        for n in range(len(frame.ids)):
            self._object(picture, frame, n)
        for known in set(self.trails) - set(frame.ids.tolist()):
            del self.trails[known]
            self.zooms.pop(known, None)
        tags = Tags(picture, self.font)
        for n in sorted(range(len(frame.ids)), key=lambda n: not frame.seen[n]):  # what is seen has the first choice
            box = self._box(frame, n)
            tags.add(str(frame.ids[n]), box, colour(int(frame.hues[n])), filled=bool(frame.seen[n]))
        write(picture, f"frame {frame.index}  {frame.time:.2f} s", (6, 18), (255, 255, 255), self.font)
        return np.concatenate((picture, self._strip(frame)), 0)

    def _masks(self, frame: Tracked) -> Pixels:
        """Masks as a tint, with their outlines."""
        down = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_NEAREST
        picture = np.asarray(cv2.resize(frame.pixels, self.canvas[::-1], interpolation=down), np.uint8).copy()
        shown = np.zeros(256, np.uint8)
        shown[frame.slots[frame.seen] + 1] = frame.slots[frame.seen] + 1
        labels = np.asarray(cv2.resize(shown[frame.labels], self.canvas[::-1], interpolation=cv2.INTER_NEAREST))
        paint = np.zeros((256, 3), np.uint8)
        paint[frame.slots + 1] = COLOURS[frame.hues % len(COLOURS)]
        rows, columns = np.nonzero(labels)
        if rows.size:
            mine = picture[rows, columns].astype(np.uint16) * 6 + paint[labels[rows, columns]].astype(np.uint16) * 4
            picture[rows, columns] = (mine // 10).astype(np.uint8)
        for slot, hue in zip(frame.slots[frame.seen], frame.hues[frame.seen], strict=True):
            outline, _ = cv2.findContours(
                (labels == slot + 1).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE
            )
            cv2.drawContours(picture, outline, -1, colour(int(hue)), self.line, cv2.LINE_AA)
        return picture

    def _object(self, picture: Pixels, frame: Tracked, n: int) -> None:
        """Trail, thin where it is old, and centre; a dashed ellipse where it is hidden."""
        paint = colour(int(frame.hues[n]))
        centre = self._centre(frame, n)
        trail = self.trails.setdefault(int(frame.ids[n]), deque(maxlen=TRAIL))
        trail.append(centre)
        path = np.array(trail, np.int32)
        cv2.polylines(picture, [path], False, paint, 1, cv2.LINE_AA)
        cv2.polylines(picture, [path[-TRAIL // 3 :]], False, paint, self.line + 1, cv2.LINE_AA)
        reach = 6 + 2 * self.line
        cv2.drawMarker(picture, centre, (255, 255, 255), cv2.MARKER_CROSS, reach + 2, self.line + 2)
        cv2.drawMarker(picture, centre, paint, cv2.MARKER_CROSS, reach, self.line)
        if not frame.seen[n]:
            width, height = self._box(frame, n)[2:]
            axes = (max(5, round(width / 2)), max(5, round(height / 2)))
            for start in range(0, 360, 30):
                cv2.ellipse(picture, centre, axes, 0, start, start + 16, paint, 2, cv2.LINE_AA)

    def _centre(self, frame: Tracked, n: int) -> tuple[int, int]:
        row, column = np.nan_to_num((frame.positions[n] + 0.5) * self.scale - 0.5).clip(-9999, 9999)
        return round(float(column)), round(float(row))

    def _box(self, frame: Tracked, n: int) -> NDArray[np.float64]:
        """Left, top, width, height of what stands for an object on the canvas."""
        if frame.seen[n]:
            return frame.boxes[n].astype(np.float64) * self.scale
        size = frame.boxes[n, 2:] if frame.boxes[n, 2] > 0 else np.full(2, 2 * frame.sizes[n])
        size = size.astype(np.float64) * self.scale
        return np.concatenate((np.array(self._centre(frame, n)) - size / 2, size))

    def _zoom(self, frame: Tracked, n: int) -> float:
        """Follows the object's size slowly, so that the picture does not jump."""
        known = int(frame.ids[n])
        before = self.zooms.get(known)
        if before is None or frame.seen[n]:
            now = zoom(frame, n)
            self.zooms[known] = now if before is None else 0.9 * before + 0.1 * now
        return self.zooms[known]

    def _strip(self, frame: Tracked) -> Pixels:
        """A tile for each slot, in order: how it paints its object, near by, its id, and a bar of how much is seen."""
        side, rows = self.tile, -(-self.slots // self.across)
        strip = np.full((rows * (side + 8), self.canvas[1], 3), _DARK, np.uint8)
        for n, slot in enumerate(frame.slots):
            top, left = (int(slot) // self.across) * (side + 8), (int(slot) % self.across) * side
            strip[top + 1 : top + side - 1, left + 1 : left + side - 1] = closeup(
                frame, n, self._zoom(frame, n), side - 2
            )
            bar = round(float(frame.visible[n].clip(0, 1)) * (side - 2))
            paint = colour(int(frame.hues[n]))
            strip[top + side + 1 : top + side + 5, left + 1 : left + 1 + bar] = paint
            write(strip, str(frame.ids[n]), (left + 4, top + 16), paint, self.font)
        return strip


def closeup(frame: Tracked, n: int, share: float, side: int) -> Pixels:
    """How the network paints an object, [side,side,3]: a square around it of so large a share of the longer side.

    Its mask is the opacity, on dark.
    """
    height, width = frame.pictures.shape[1:3]
    half = max(4, round(share * max(height, width) / 2))
    place = np.nan_to_num(frame.codes[n, :2]).clip(-1, 1)
    row, column = (round(float(at + 1) / 2 * (size - 1)) for at, size in zip(place, (height, width), strict=True))
    around = np.zeros((2 * half, 2 * half, 4), np.uint8)
    rows, columns = slice(max(0, row - half), row + half), slice(max(0, column - half), column + half)
    inside = frame.pictures[n, rows, columns]
    down, right = rows.start - (row - half), columns.start - (column - half)
    around[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    opacity = around[..., 3:].astype(np.float32) / 255
    flat = (around[..., :3] * opacity + _DARK * (1 - opacity)).astype(np.uint8)
    method = cv2.INTER_AREA if side < 2 * half else cv2.INTER_NEAREST
    return np.asarray(cv2.resize(flat, (side, side), interpolation=method), np.uint8)


def zoom(frame: Tracked, n: int) -> float:
    """How much of the longer side a square around an object takes that shows it and as much again."""
    return float(np.clip(2 * frame.boxes[n, 2:].max() / max(frame.pixels.shape[:2]), 0.1, 1))
