"""What happens in a CATER clip: who stands where, who moves how, who hides whom. No pictures here.

The rules are CATER's (see docs/worlds.md). A script is a pure function of (seed, split, clip): its random numbers come
from a key, its arithmetic is plain float64, so it is the same on every machine. It runs on the host, some 4 ms a clip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from loci import random
from loci.data.source import Split
from loci.worlds.cater_path import Path, Place, Places
from loci.worlds.scene import COLOURS, MATERIALS, cone_origin

Kind = Literal["_slide", "_pick_place", "_rotate", "_contain", "_no_op"]

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
        self._parts, self._blocks = parts, 0
        self._next = iter(()).__next__

    def number(self) -> float:
        """The next one, in [0, 1)."""
        try:
            return self._next()
        except StopIteration:
            numbers = random.uniform(random.key(*self._parts, self._blocks), (4096,), torch.float64).tolist()
            self._blocks += 1
            self._next = iter(numbers).__next__
            return self._next()

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.number()

    def below(self, count: int) -> int:
        return int(self.number() * count)

    def pick(self, choices: tuple[str, ...]) -> str:
        return choices[self.below(len(choices))]

    def shuffle(self, count: int) -> list[int]:
        order, number = list(range(count)), self.number
        for last in range(count - 1, 0, -1):
            other = int(number() * (last + 1))
            order[last], order[other] = order[other], order[last]
        return order


def write(seed: int, split: Split, index: int, length: int = LENGTH) -> Script:
    """The script of a clip; of a length beyond CATER's, the story simply goes on."""
    draws = _Draws("cater", seed, split, index)
    last = max(length, LENGTH) - 1
    things, starts = _cast(draws)
    stage = _Stage(things, starts, last + 1)
    frame = 0
    while frame <= last - LONGEST:
        frame = 1 + (stage.contain_round(draws, frame) if draws.below(2) else stage.move_round(draws, frame))
    places = np.ascontiguousarray(stage.tracks[:, :, :length].transpose(1, 2, 0))
    return Script(things, places, tuple(tuple(moves) for moves in stage.moves))


def _cast(draws: _Draws) -> tuple[tuple[Thing, ...], list[Place]]:
    """Choose the objects and put each where it keeps its distance; begin anew when there is no room."""
    colours = tuple(name for name in COLOURS if name != "gold")
    shapes = ("cube", "sphere", "cylinder", "cone")
    count = 5 + draws.below(6)
    while True:
        things: list[Thing] = []
        places: list[Place] = []
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
            return tuple(things), places


class _Stage:
    """Objects while their story is being written. A group is what moves together, the outermost cone first.

    Attributes:
        tracks: [3,N,T] where everything is; whatever has no move yet stays where it is until the end.
        rests: Where everything ends up.
        busy: Behind it nothing moves yet.
    """

    def __init__(self, things: tuple[Thing, ...], starts: list[Place], frames: int) -> None:
        self.things, self.rests = things, list(starts)
        self.tracks = np.repeat(np.array(starts).T[:, :, None], frames, 2)
        self.sizes = [thing.sized for thing in things]
        self.busy = 0
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
            x, y, _ = self.rests[covered[0]]
            path = Path(self.rests[cone[0]], x, y, True, end - start + 1)
            if not self._free(cone, [path], start, besides=covered):
                continue
            self._record(cone[0], Move("_contain", covered[0], start, end), path)
            self.groups[first] = cone + covered
            del self.groups[second]
            return max(end, self.move_round(draws, frame, resting=cone[0]))
        return frame - 1

    def _span(self, draws: _Draws, frame: int) -> tuple[int, int]:
        start = frame + draws.below(LATE + 1)
        return start, min(start + SHORTEST + draws.below(LONGEST - SHORTEST + 1), self.tracks.shape[2] - 1)

    def _covers(self, cone: int, other: int) -> bool:
        first, second = self.things[cone], self.things[other]
        return first.shape == "cone" and first.sized > second.sized and second.shape in ("cone", "sphere", "spl")

    def _move(self, draws: _Draws, group: list[int], start: int, end: int) -> bool:
        """Move a group; says whether its outermost object left the others behind."""
        kinds: tuple[Kind, ...] = ("_slide", "_pick_place", "_rotate")
        if len(group) > 1 or self.things[group[0]].shape in ("cone", "sphere"):
            kinds = kinds[:2]
        frames = end - start + 1
        here = [self.rests[number] for number in group]
        resting = [Path(place, place[0], place[1], False, frames) for place in here]
        for _ in range(TRIES):
            kind = kinds[draws.below(len(kinds))]
            paths = resting
            if kind != "_rotate":
                x, y = draws.between(-REACH, REACH), draws.between(-REACH, REACH)
                if kind == "_slide":
                    paths = [Path(place, x, y, False, frames) for place in here]
                else:
                    paths = [Path(here[0], x, y, True, frames), *resting[1:]]
            leaves = kind == "_pick_place" and len(group) > 1
            if not self._free(group, paths, start):
                continue
            if leaves and math.dist(paths[0].end, here[1]) - self.sizes[group[0]] - self.sizes[group[1]] < GAP:
                continue
            for depth, (number, path) in enumerate(zip(group, paths, strict=True)):
                self._record(number, Move("_no_op" if leaves and depth else kind, None, start, end), path)
            return leaves
        for number, path in zip(group, resting, strict=True):
            self._record(number, Move("_no_op", None, start, end), path)
        return False

    def _free(self, group: list[int], paths: list[Path], start: int, besides: list[int] | None = None) -> bool:
        """Does a group on these paths, resting at their ends for good, keep its distance from all others?"""
        apart = [*group, *(besides or [])]
        others = [(*self.rests[n], self.sizes[n]) for n in range(len(self.sizes)) if n not in apart]
        # The ends first: most tries fail there, and they are single places instead of paths.
        for number, path in zip(group, paths, strict=True):
            (x, y, z), size = path.end, self.sizes[number]
            for a, b, c, other in others:
                if math.sqrt((a - x) * (a - x) + (b - y) * (b - y) + (c - z) * (c - z)) - size - other < GAP:
                    return False
        # Behind `stop` all rest where they were just compared.
        stop = max(self.busy, start + paths[0].frames)
        tracks, sizes = self.tracks[:, :, start:stop], np.array(self.sizes)
        sizes[apart] = -math.inf  # far from everything
        for number, path in zip(group, paths, strict=True):
            way = tracks[:, number].copy()
            way[:, : path.frames] = path.track()
            way[:, path.frames :] = way[:, path.frames - 1 : path.frames]
            between = tracks - way[:, None]
            between *= between
            distance = np.sqrt(between[0] + between[1] + between[2])
            distance -= self.sizes[number]
            distance -= sizes[:, None]
            if distance.min() < GAP:
                return False
        return True

    def _record(self, number: int, move: Move, path: Path) -> None:
        self.moves[number].append(move)
        self.tracks[:, number, move.start : move.end + 1] = path.track()
        self.rests[number] = path.end
        self.tracks[:, number, move.end :] = np.array(path.end)[:, None]
        self.busy = max(self.busy, move.end + 1)
