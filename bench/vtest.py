"""How well the pedestrians of vtest.avi were tracked: python bench/vtest.py TRACKS [STILLS.png]

TRACKS is the folder that `loci track vtest.avi` wrote. `vtest_people.csv` says where each of 20 people is, marked by
eye (a person who comes back is somebody else); between its lines a person walks straight on. A box of mot.txt is right
where its centre is at most 40 pixels from a person's: half as far as people are tall. When two people cross, their ids
from before should be theirs afterwards; STILLS shows each crossing before, during and after, as the overlay has it.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loci.evaluate.metrics_tracking import Sighting, clear, identity
from loci.track.background import write_image
from loci.track.tags import write
from loci.track.video_in import open_video

PEOPLE = Path(__file__).with_name("vtest_people.csv")
NEAR = 40.0
"""Pixels: as far as a box may be from its person, and as near as people are when they meet."""
AROUND = 20
"""Frames before and after a meeting from which ids are taken."""

Places = dict[str, np.ndarray]
"""For each person rows of frame, row, column; one for every frame."""


class Crossing(NamedTuple):
    """Two people who pass each other, the frames of their meeting, and their ids (0: none) before and after."""

    people: tuple[str, str]
    first: int
    last: int
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def outcome(self) -> str:
        """In a word."""
        if 0 in self.before or 0 in self.after or self.before[0] == self.before[1]:
            return "somebody unseen"
        if self.before == self.after:
            return "kept"
        return "swapped" if self.before == self.after[::-1] else "changed"


def people() -> Places:
    """Everybody in every frame."""
    marks: dict[str, list[tuple[float, float, float]]] = {}
    with PEOPLE.open() as file:
        for line in csv.DictReader(file):
            marks.setdefault(line["person"], []).append((int(line["frame"]), float(line["row"]), float(line["column"])))
    places = {}
    for person, rows in marks.items():
        known = np.array(rows)
        frames = np.arange(known[0, 0], known[-1, 0] + 1)
        places[person] = np.stack([frames, *(np.interp(frames, known[:, 0], known[:, n]) for n in (1, 2))], 1)
    return places


def boxes(tracks: Path) -> dict[int, dict[int, tuple[float, float]]]:
    """For each frame, counted from 0, the centre (row, column) of each id's box."""
    found: dict[int, dict[int, tuple[float, float]]] = {}
    for line in (tracks / "mot.txt").read_text().splitlines():
        frame, known, left, top, width, height = (float(word) for word in line.split(",")[:6])
        found.setdefault(int(frame) - 1, {})[int(known)] = (top + height / 2, left + width / 2)
    return found


def sightings(places: Places, found: dict[int, dict[int, tuple[float, float]]]) -> list[Sighting]:
    """Both, frame by frame; a similarity of 1/2 is as far as a box may be away."""
    names = sorted(places)
    result = []
    for frame in range(int(max(rows[-1, 0] for rows in places.values())) + 1):
        here = {n: at for n, name in enumerate(names) if (at := where(places[name], frame)) is not None}
        there = found.get(frame, {})
        truth, boxed = (np.array(list(each.values())).reshape(-1, 2) for each in (here, there))
        distance = np.linalg.norm(truth[:, None] - boxed[None], axis=-1)
        result.append(Sighting(list(here), list(there), np.clip(1 - distance / (2 * NEAR), 0, 1)))
    return result


def where(rows: np.ndarray, frame: int) -> np.ndarray | None:
    """A person's row and column in a frame, if there."""
    index = frame - int(rows[0, 0])
    return rows[index, 1:] if 0 <= index < len(rows) else None


def paired(video: list[Sighting]) -> list[dict[int, int]]:
    """Who has which id in each frame; a pair is kept as long as it holds."""
    before: dict[int, int] = {}
    result = []
    for frame in video:
        alike = {
            (g, p): frame.similarity[a, b] for a, g in enumerate(frame.truth) for b, p in enumerate(frame.predicted)
        }
        free = {pair: value + (before.get(pair[0]) == pair[1]) for pair, value in alike.items() if value >= 0.5}
        pairs: dict[int, int] = {}
        for g, p in sorted(free, key=lambda pair: -free[pair]):
            if g not in pairs and p not in pairs.values():
                pairs[g] = p
        result.append(pairs)
        before = pairs
    return result


def crossings(places: Places, pairs: list[dict[int, int]]) -> list[Crossing]:
    """Every time that two people come near and are the other way round when they part."""
    names = sorted(places)
    result = []
    for a, one in enumerate(names):
        for b, two in list(enumerate(names))[a + 1 :]:
            for first, last in meetings(places[one], places[two]):
                spans = range(first - AROUND, first), range(last + 1, last + 1 + AROUND)
                apart = [[f for f in span if side(places[one], places[two], f)] for span in spans]
                if not all(apart):
                    continue
                sides = side(places[one], places[two], apart[0][0]), side(places[one], places[two], apart[1][-1])
                if sides[0] == sides[1]:
                    continue
                ids = [tuple(usual(pairs, apart[n], who) for who in (a, b)) for n in (0, 1)]
                result.append(Crossing((one, two), first, last, *ids))
    return sorted(result, key=lambda each: each.first)


def meetings(one: np.ndarray, two: np.ndarray) -> list[tuple[int, int]]:
    """First and last frames of the times at which two people are near each other."""
    begin, end = int(max(one[0, 0], two[0, 0])), int(min(one[-1, 0], two[-1, 0]))
    near = [f for f in range(begin, end + 1) if np.linalg.norm(where(one, f) - where(two, f)) < NEAR]
    spans: list[tuple[int, int]] = []
    for frame in near:
        if spans and frame - spans[-1][1] <= 10:
            spans[-1] = (spans[-1][0], frame)
        else:
            spans.append((frame, frame))
    return spans


def side(one: np.ndarray, two: np.ndarray, frame: int) -> int:
    """-1 or 1: which of the two is further left; 0 where they are near, or one is not there."""
    here, there = where(one, frame), where(two, frame)
    if here is None or there is None or np.linalg.norm(here - there) < NEAR:
        return 0
    return int(np.sign(here[1] - there[1]))


def usual(pairs: list[dict[int, int]], frames: list[int], who: int) -> int:
    """The id a person has most of the time; 0 if none."""
    ids = Counter(pairs[f][who] for f in frames if who in pairs[f])
    return ids.most_common(1)[0][0] if ids else 0


def stills(tracks: Path, places: Places, shown: list[Crossing], out: Path) -> None:
    """Each crossing in three pictures, a row for each."""
    wanted = {f for each in shown for f in moments(each)}
    with open_video(tracks / "overlay.mp4") as video:
        pictures = {frame.index: frame.pixels for frame in video if frame.index in wanted}
    rows = []
    for each in shown:
        middle = (each.first + each.last) // 2
        row, column = np.mean([where(places[who], middle) for who in each.people], 0)
        top, left = (int(np.clip(at, 0, most)) for at, most in ((row - 100, 376), (column - 160, 448)))
        row_of = [pictures[f][top : top + 200, left : left + 320].copy() for f in moments(each)]
        for frame, picture in zip(moments(each), row_of, strict=True):
            words = f"{'/'.join(each.people)} frame {frame} {each.outcome if frame == moments(each)[-1] else ''}"
            write(picture, words, (4, 194), (255, 255, 255), 0.45)
        rows.append(np.concatenate([np.pad(p, ((0, 4), (0, 4), (0, 0)), constant_values=255) for p in row_of], 1))
    write_image(out, np.concatenate(rows))


def moments(each: Crossing) -> tuple[int, int, int]:
    """Before, during and after."""
    return max(0, each.first - 8), (each.first + each.last) // 2, min(794, each.last + 8)


def main(folder: str, out: str | None = None) -> None:
    """Print the figures; draw the crossings."""
    tracks, places = Path(folder), people()
    video = sightings(places, boxes(tracks))
    pairs = paired(video)
    counts, same = clear(video), identity(video)
    ids = {p for frame in pairs for p in frame.values()}
    print(
        f"MOTA {counts.mota:.1%}, IDF1 {same.idf1:.1%}; {counts.pairs} of {counts.pairs + counts.missed} sightings of "
        f"{len(places)} people found, {counts.invented} boxes on nobody, {counts.switches} switches, {len(ids)} ids"
    )
    shown = crossings(places, pairs)
    print(f"{len(shown)} crossings: {dict(Counter(each.outcome for each in shown))}")
    for each in shown:
        print(
            f"  {'/'.join(each.people)}, frames {each.first}-{each.last}: {each.before} -> {each.after}: {each.outcome}"
        )
    if out and shown:
        stills(tracks, places, shown, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
