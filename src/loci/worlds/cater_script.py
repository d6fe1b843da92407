"""What happens in a CATER clip: who stands where, who moves how, who hides whom. No pictures here.

The rules are CATER's (see docs/worlds.md). A script is a pure function of (seed, split, clip): its random numbers come
from a key, its arithmetic is plain float64, so it is the same on every machine. It runs on the host: some 15 ms a clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from loci import random
from loci.data.source import Split
from loci.worlds.scene import COLOURS, MATERIALS, cone_origin

Kind = Literal["_slide", "_pick_place", "_rotate", "_contain", "_no_op"]
Places = NDArray[np.float64]

LENGTH = 301
"""Frames in a published clip; shorter clips are its beginning."""

SIZES = {"small": 0.25, "medium": 0.5, "large": 0.75}
INSTANCES = {
    "cube": "SmoothCube_v2",
    "sphere": "Sphere",
    "cylinder": "SmoothCylinder-Short",
    "cone": "Cone",
    "spl": "Spl",
}
"""The names CATER's files give to the shapes."""

SNITCH_SIZE = 0.3
SNITCH_Z = 0.3421497821807861
REACH = 3.0
GAP = 0.25
LIFT = 2.0
TRIES = 100
LATE = 10
SHORTEST, LONGEST = 20, 30


@dataclass(frozen=True)
class Thing:
    """One object, in CATER's words; `sized` is its number of world units, `rotation` its first turn about z."""

    shape: str
    size: str
    sized: float
    material: str
    colour: str
    rotation: float
    instance: str


@dataclass(frozen=True)
class Move:
    """From frame `start` to frame `end`; `other` is the object that a `_contain` covers."""

    kind: Kind
    other: int | None
    start: int
    end: int


@dataclass(frozen=True)
class Script:
    """A clip before it is drawn.

    Attributes:
        things: The objects; the first is the snitch.
        places: [N,T,3] where their origins are.
        moves: For each object, its moves in order.
    """

    things: tuple[Thing, ...]
    places: Places
    moves: tuple[tuple[Move, ...], ...]


class _Draws:
    """Random numbers one after another; the n-th of a key is always the same."""

    def __init__(self, *parts: int | str) -> None:
        self._numbers = self._stream(parts)

    @staticmethod
    def _stream(parts: tuple[int | str, ...]) -> Iterator[float]:
        block = 0
        while True:
            yield from random.uniform(random.key(*parts, block), (4096,), torch.float64).tolist()
            block += 1

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * next(self._numbers)

    def below(self, count: int) -> int:
        return int(next(self._numbers) * count)

    def pick(self, choices: tuple[str, ...]) -> str:
        return choices[self.below(len(choices))]

    def shuffle(self, count: int) -> list[int]:
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def write(seed: int, split: Split, index: int, length: int = LENGTH) -> Script:
    """The script of a clip; of a length beyond CATER's, the story simply goes on."""
    draws = _Draws("cater", seed, split, index)
    last = max(length, LENGTH) - 1
    things, starts = _cast(draws)
    stage = _Stage(things, np.repeat(starts[:, None], last + 1, 1))
    frame = 0
    while frame <= last - LONGEST:
        frame = 1 + (stage.contain_round(draws, frame) if draws.below(2) else stage.move_round(draws, frame))
    return Script(things, stage.places[:, :length], tuple(tuple(moves) for moves in stage.moves))


def _cast(draws: _Draws) -> tuple[tuple[Thing, ...], Places]:
    """Choose the objects and put each where it keeps its distance; begin anew when there is no room."""
    colours = tuple(name for name in COLOURS if name != "gold")
    shapes = ("cube", "sphere", "cylinder", "cone")
    count = 5 + draws.below(6)
    while True:
        things: list[Thing] = []
        places: list[tuple[float, float, float]] = []
        for number in range(count):
            shape = ("spl", "cone", "cone")[number] if number < 3 else draws.pick(shapes)
            size = ("small", "medium", "large")[number] if number < 3 else draws.pick(tuple(SIZES))
            sized = SNITCH_SIZE if shape == "spl" else SIZES[size]
            z = SNITCH_Z if shape == "spl" else cone_origin(sized) if shape == "cone" else sized
            material = "metal" if shape == "spl" else draws.pick(MATERIALS)
            colour = "gold" if shape == "spl" else draws.pick(colours)
            copies = sum(thing.shape == shape for thing in things)
            turn = draws.between(0, 360)
            for _ in range(TRIES):
                place = (draws.between(-REACH, REACH), draws.between(-REACH, REACH), z)
                if all(math.dist(place, p) - sized - t.sized >= GAP for p, t in zip(places, things, strict=True)):
                    things.append(Thing(shape, size, sized, material, colour, turn, f"{INSTANCES[shape]}_{copies}"))
                    places.append(place)
                    break
            else:
                break
        else:
            return tuple(things), np.array(places)


def _line(start: Places, end: Places, frames: int) -> Places:
    """Straight from start to end in this many frames, both included."""
    steps = np.arange(frames, dtype=np.float64)[:, None] / max(frames - 1, 1)
    return start + (end - start) * steps


def _lifted(start: Places, x: float, y: float, frames: int) -> Places:
    """Up within the first fifth of the frames, across until four fifths, down."""
    up, across = int(0.2 * frames), int(0.8 * frames)
    above, beyond = start + (0, 0, LIFT), np.array((x, y, start[2] + LIFT))
    return np.concatenate(
        (
            _line(start, above, up + 1),
            _line(above, beyond, across - up),
            _line(beyond, beyond - (0, 0, LIFT), frames - across - 1),
        )
    )


class _Stage:
    """Objects while their story is being written. A group is what moves together, the outermost cone first."""

    def __init__(self, things: tuple[Thing, ...], places: Places) -> None:
        self.things, self.places = things, places
        self.sizes = np.array([thing.sized for thing in things])
        self.moves: list[list[Move]] = [[] for _ in things]
        self.groups = [[number] for number in range(len(things))]

    def move_round(self, draws: _Draws, frame: int, resting: int | None = None) -> int:
        """Everybody moves, but for the group whose outermost object is `resting`; returns the last frame."""
        last = -1
        released: list[list[int]] = []
        groups = [self.groups[number] for number in draws.shuffle(len(self.groups))]
        for group in groups:
            if group[0] == resting:
                continue
            start, end = self._span(draws, frame)
            last = max(last, end)
            if self._move(draws, group, start, end):
                released.append(group[1:])
                del group[1:]
        self.groups += released
        return last

    def contain_round(self, draws: _Draws, frame: int) -> int:
        """A cone covers something smaller, everybody else moves; returns the last frame, or the one before: no pair."""
        for _ in range(TRIES):
            first, second = draws.shuffle(len(self.groups))[:2]
            start, end = self._span(draws, frame)
            cone, covered = self.groups[first], self.groups[second]
            if len(cone) > 1 or not self._covers(cone[0], covered[0]):
                continue
            x, y, _ = self.places[covered[0], start]
            path = _lifted(self.places[cone[0], start], x, y, end - start + 1)
            if not self._free(cone, [path], start, besides=covered):
                continue
            self._record(cone[0], Move("_contain", covered[0], start, end), path)
            self.groups[first] = cone + covered
            del self.groups[second]
            return max(end, self.move_round(draws, frame, resting=cone[0]))
        return frame - 1

    def _span(self, draws: _Draws, frame: int) -> tuple[int, int]:
        start = frame + draws.below(LATE + 1)
        return start, min(start + SHORTEST + draws.below(LONGEST - SHORTEST + 1), self.places.shape[1] - 1)

    def _covers(self, cone: int, other: int) -> bool:
        first, second = self.things[cone], self.things[other]
        return first.shape == "cone" and first.sized > second.sized and second.shape in ("cone", "sphere", "spl")

    def _move(self, draws: _Draws, group: list[int], start: int, end: int) -> bool:
        """Move a group; says whether its outermost object left the others behind."""
        kinds: tuple[Kind, ...] = ("_slide", "_pick_place", "_rotate")
        if len(group) > 1 or self.things[group[0]].shape in ("cone", "sphere"):
            kinds = kinds[:2]
        frames = end - start + 1
        here = [self.places[number, start] for number in group]
        for _ in range(TRIES):
            kind = kinds[draws.below(len(kinds))]
            paths = [_line(place, place, frames) for place in here]
            if kind != "_rotate":
                x, y = draws.between(-REACH, REACH), draws.between(-REACH, REACH)
                if kind == "_slide":
                    paths = [_line(place, np.array((x, y, place[2])), frames) for place in here]
                else:
                    paths[0] = _lifted(here[0], x, y, frames)
            leaves = kind == "_pick_place" and len(group) > 1
            if not self._free(group, paths, start):
                continue
            if leaves and math.dist(paths[0][-1], here[1]) - self.sizes[group[0]] - self.sizes[group[1]] < GAP:
                continue
            for depth, (number, path) in enumerate(zip(group, paths, strict=True)):
                self._record(number, Move("_no_op" if leaves and depth else kind, None, start, end), path)
            return leaves
        for number, place in zip(group, here, strict=True):
            self._record(number, Move("_no_op", None, start, end), _line(place, place, frames))
        return False

    def _free(self, group: list[int], paths: list[Places], start: int, besides: list[int] | None = None) -> bool:
        """Does a group on these paths, resting at their ends for good, keep its distance from all others?"""
        others = [n for n in range(len(self.things)) if n not in group and n not in (besides or [])]
        places, sizes = self.places[others, start:], self.sizes[others]
        for number, path in zip(group, paths, strict=True):
            own = np.concatenate((path, np.repeat(path[-1:], places.shape[1] - len(path), 0)))
            # The end first: most tries fail there, and it is one place instead of a path.
            for frames in (slice(-1, None), slice(None)):
                apart = np.square(places[:, frames] - own[frames])
                distance = np.sqrt(apart[..., 0] + apart[..., 1] + apart[..., 2])
                if np.any(distance - self.sizes[number] - sizes[:, None] < GAP):
                    return False
        return True

    def _record(self, number: int, move: Move, path: Places) -> None:
        self.moves[number].append(move)
        self.places[number, move.start : move.end + 1] = path
        self.places[number, move.end :] = path[-1]
