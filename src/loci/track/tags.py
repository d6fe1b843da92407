"""Ids written beside their objects, so that they can be read on any ground."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_INK: tuple[Colour, Colour] = ((255, 255, 255), (0, 0, 0))


class Tags:
    """The tags of one picture: none covers another one as long as there is room beside its object."""

    def __init__(self, picture: Pixels, scale: float) -> None:
        self.picture = picture
        self.scale = scale
        self.taken: list[Rectangle] = []

    def add(self, words: str, box: NDArray[np.floating], paint: Colour, *, filled: bool) -> None:
        """Write a tag beside a box (left, top, width, height): filled, or a frame only for what is hidden."""
        (width, height), base = cv2.getTextSize(words, _FONT, self.scale, 1)
        place = self._place((width + 6, height + base + 2), box)
        left, top, right, bottom = place
        self.taken.append(place)
        bright = paint[0] * 0.3 + paint[1] * 0.59 + paint[2] * 0.11 > 110
        ink = _INK[bright] if filled else paint
        cv2.rectangle(self.picture, (left, top), (right, bottom), paint if filled else (0, 0, 0), cv2.FILLED)
        if not filled:
            cv2.rectangle(self.picture, (left, top), (right, bottom), paint, 1)
        cv2.putText(self.picture, words, (left + 3, bottom - base), _FONT, self.scale, ink, 1, cv2.LINE_AA)

    def _place(self, size: tuple[int, int], box: NDArray[np.floating]) -> Rectangle:
        """Above the box, below it, right or left of it: the first that is free, or else above."""
        left, top, width, height = (int(number) for number in np.round(box))
        across, down = size
        corners = (
            (left, top - down - 2),
            (left, top + height + 2),
            (left + width + 2, top),
            (left - across - 2, top),
            (left + width + 2, top + height - down),
            (left - across - 2, top + height - down),
        )
        places = [self._inside(corner, size) for corner in corners]
        return next((place for place in places if not any(_meet(place, other) for other in self.taken)), places[0])

    def _inside(self, corner: tuple[int, int], size: tuple[int, int]) -> Rectangle:
        """Moved into the picture."""
        rows, columns = self.picture.shape[:2]
        left = max(0, min(corner[0], columns - 1 - size[0]))
        top = max(0, min(corner[1], rows - 1 - size[1]))
        return left, top, left + size[0], top + size[1]


def _meet(one: Rectangle, two: Rectangle) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def write(picture: Pixels, words: str, place: tuple[int, int], paint: Colour, scale: float) -> None:
    """Words with a dark rim; `place` is where their line begins."""
    left, below = place
    for across, down in ((-1, -1), (-1, 1), (1, -1), (1, 1)):  # a thicker line would be spaced otherwise
        cv2.putText(picture, words, (left + across, below + down), _FONT, scale, (0, 0, 0), 1, cv2.LINE_AA)
    cv2.putText(picture, words, place, _FONT, scale, paint, 1, cv2.LINE_AA)
