"""Ids that follow objects by how they move, where slots change hands.

A slot is an object as long as the network holds on to it; that is Loci's own identity, and the default for networks
that learned from worlds and data sets. On a camera's own footage, where people pass each other and codes have learned
little of who is who, slots trade places. Here an id goes on along the path of what it stood for: every object in sight
has a place and a speed, what is seen in a frame goes to the ids that expected it there (the Hungarian method), and what
nobody expected is somebody new once it has been there for three frames. Nothing waits for later frames.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SURE = 3
"""Frames that something must be seen for before it gets an id."""
NEAR = 0.8
"""How far from where it was expected an object may be, in its own sizes; as much again for each second unseen."""
FAR = 2.0
"""The most of that."""
TWIN = 0.4
"""Nearer than this to an object already seen, in its sizes, is a piece of that one and nothing new."""
OTHER_SLOT = 0.25
"""What it costs to go on in another slot, in sizes: of two places as good as each other, the same slot's is taken."""
PULL, PUSH, RESIZE = 0.6, 0.15, 0.1
"""How much of what was unexpected goes into place, speed and size."""
MEET = 1.0
"""Nearer than this to each other, in sizes, two objects meet. What is seen may then be either of them, so the way they
came says who is who when they part: nothing is learned of their speeds,"""
PULL_MEETING = 0.2
"""and only so much of their places."""
DRAG = 0.95
"""What is left of a speed after a frame unseen."""


class Links(NamedTuple):
    """Everything that has an id, or may get one; all empty at first."""

    ids: Integers
    """[N] from 1; 0 where it has not been seen for long enough yet."""
    places: Floats
    """[N,2] row and column."""
    speeds: Floats
    """[N,2] pixels a frame."""
    sizes: Floats
    """[N] side of a square of the box's area."""
    seen: Integers
    """[N] frames in which it was seen."""
    unseen: Integers
    """[N] frames since."""
    slots: Integers
    """[N] the slot it was last seen in."""
    total: int
    """How many ids there were so far."""

    @staticmethod
    def none() -> Links:
        """Nobody yet."""
        zero, pairs = np.zeros(0, np.int64), np.zeros((0, 2))
        return Links(zero, pairs, pairs, np.zeros(0), zero, zero, zero, 0)

    def keep(self, which: NDArray[np.bool_]) -> Links:
        """Some of them."""
        return Links(self.ids[which], self.places[which], self.speeds[which], self.sizes[which], self.seen[which],
                     self.unseen[which], self.slots[which], self.total)  # fmt: skip


def link(links: Links, boxes: Floats, slots: Integers, *, patience: float, rate: float) -> tuple[Links, Integers]:
    """The ids of what is seen in a frame, 0 for none.

    Args:
        links: what the last frame left.
        boxes: [S,4] left, top, width, height.
        slots: [S] which slot each is in.
        patience: frames unseen after which an id is over.
        rate: frames a second.
    """
    centres = boxes[:, 1::-1] + boxes[:, :1:-1] / 2
    sizes = np.sqrt(boxes[:, 2] * boxes[:, 3])
    expected = links.places + links.speeds
    distance = np.linalg.norm(expected[:, None] - centres[None], axis=2) / links.sizes[:, None]
    reach = np.minimum(NEAR * (1 + links.unseen / rate), FAR)[:, None]
    cost = np.where(distance <= reach, distance + OTHER_SLOT * (links.slots[:, None] != slots[None]), 1e3)
    rows, columns = linear_sum_assignment(cost)
    found = cost[rows, columns] < 1e3
    rows, columns = rows[found], columns[found]
    links = _moved(links, expected, centres, sizes, slots, rows, columns)
    sure = (links.ids == 0) & (links.seen >= SURE)
    links.ids[sure] = links.total + 1 + np.arange(sure.sum())
    links = links._replace(total=links.total + int(sure.sum()))
    ids = np.zeros(len(slots), np.int64)
    ids[columns] = links.ids[rows]
    taken = [*zip(links.places[links.unseen == 0], links.sizes[links.unseen == 0], strict=True)]
    new = []
    for one in np.setdiff1d(np.arange(len(slots)), columns):
        if all(np.linalg.norm(place - centres[one]) > TWIN * size for place, size in taken):
            taken.append((centres[one], sizes[one]))
            new.append(one)
    links = links.keep((links.unseen == 0) | ((links.ids > 0) & (links.unseen <= patience)))
    chosen = np.array(new, np.int64)
    return _joined(links, centres[chosen], sizes[chosen], slots[chosen]), ids


def _near(places: Floats, sizes: Floats) -> NDArray[np.bool_]:
    """[N,N] who meets whom."""
    apart = np.linalg.norm(places[:, None] - places[None], axis=2) / np.minimum(sizes[:, None], sizes[None])
    np.fill_diagonal(apart, np.inf)
    return np.asarray(apart < MEET)


def _moved(
    links: Links, expected: Floats, centres: Floats, sizes: Floats, slots: Integers, rows: Integers, columns: Integers
) -> Links:
    """Where everybody is now."""
    seen = np.zeros(len(links.ids), np.bool_)
    seen[rows] = True
    places, speeds = expected.copy(), np.where(seen[:, None], links.speeds, DRAG * links.speeds)
    surprise = centres[columns] - expected[rows]
    alone = ~np.asarray(_near(expected, links.sizes).any(1))[rows, None]
    places[rows] += np.where(alone, PULL, PULL_MEETING) * surprise
    speeds[rows] += np.where(alone, PUSH, 0) * surprise
    scale, where = links.sizes.copy(), links.slots.copy()
    scale[rows] += RESIZE * (sizes[columns] - scale[rows])
    where[rows] = slots[columns]
    return Links(
        links.ids.copy(), places, speeds, scale, links.seen + seen, np.where(seen, 0, links.unseen + 1), where,
        links.total,
    )  # fmt: skip


def _joined(links: Links, centres: Floats, sizes: Floats, slots: Integers) -> Links:
    """With those that have come."""
    zero = np.zeros(len(slots), np.int64)
    return Links(
        ids=np.concatenate((links.ids, zero)),
        places=np.concatenate((links.places, centres)),
        speeds=np.concatenate((links.speeds, np.zeros_like(centres))),
        sizes=np.concatenate((links.sizes, sizes)),
        seen=np.concatenate((links.seen, zero + 1)),
        unseen=np.concatenate((links.unseen, zero)),
        slots=np.concatenate((links.slots, slots)),
        total=links.total,
    )
