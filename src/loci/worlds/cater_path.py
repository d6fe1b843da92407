"""The ways along which CATER's objects move: place after place, and their ends for a quick no."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.float64]
Place = tuple[float, float, float]

LIFT = 2.0
"""How high an object is picked up."""


@functools.cache
def _steps(frames: int) -> Places:
    """From 0 to 1 in this many frames, both included."""
    steps = np.arange(frames, dtype=np.float64) / max(frames - 1, 1)
    steps.flags.writeable = False
    return steps


@dataclass(frozen=True)
class Path:
    """A way from a place to (x, y), within some frames: straight along the floor, or lifted across.

    Most ways that are tried fail at their end, which is known at once; the way itself is made for the others.
    """

    start: Place
    x: float
    y: float
    lifted: bool
    frames: int

    @property
    def end(self) -> Place:
        """The last place, to the bit what `track` ends with."""
        x, y, z = self.start
        if self.lifted:
            above = z + LIFT
            return self.x, self.y, above + ((above - LIFT) - above)
        return x + (self.x - x), y + (self.y - y), z

    def track(self) -> Places:
        """All places; lifted: up within the first fifth of the frames, across until four fifths, down."""
        x, y, z = self.start
        result = np.empty((3, self.frames))
        if not self.lifted:
            steps = _steps(self.frames)
            result[0], result[1], result[2] = x + (self.x - x) * steps, y + (self.y - y) * steps, z
            return result
        up, across = int(0.2 * self.frames), int(0.8 * self.frames)
        above, steps = z + LIFT, _steps(across - up)
        result[0, : up + 1], result[1, : up + 1] = x, y
        result[2, : up + 1] = z + (above - z) * _steps(up + 1)
        result[0, up + 1 : across + 1], result[1, up + 1 : across + 1] = (
            x + (self.x - x) * steps,
            y + (self.y - y) * steps,
        )
        result[2, up + 1 : across + 1] = above
        result[0, across + 1 :], result[1, across + 1 :] = self.x, self.y
        result[2, across + 1 :] = above + ((above - LIFT) - above) * _steps(self.frames - across - 1)
        return result
