"""Ids that follow objects by how they move, whatever the slots do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loci.track.link import SURE, Links, link

SIZE = 20.0


def boxes(*centres):
    """Left, top, width, height around each (row, column)."""
    return np.array([(column - SIZE / 2, row - SIZE / 2, SIZE, SIZE) for row, column in centres]).reshape(-1, 4)


def watch(frames, slots=None, patience=20.0):
    """The ids in each of some frames, which are lists of centres."""
    links, found = Links.none(), []
    for t, centres in enumerate(frames):
        where = np.arange(len(centres)) if slots is None else np.array(slots(t, len(centres)))
        links, ids = link(links, boxes(*centres), where, patience=patience, rate=10)
        found.append(ids.tolist())
    return found


def passing(t):
    """Two who walk through each other at frame 20."""
    return (50.0, 20 + 4.0 * t), (52.0, 180 - 4.0 * t)


def test_ids_come_after_three_frames_and_stay():
    found = watch([[(50.0, 3.0 * t), (90.0, 200 - 3.0 * t)] for t in range(30)])
    assert found[: SURE - 1] == [[0, 0]] * (SURE - 1)
    assert all(ids == [1, 2] for ids in found[SURE:])


def test_ids_pass_each_other_although_slots_are_swapped():
    found = watch([list(passing(t)) for t in range(40)], slots=lambda t, n: [0, 1] if t < 20 else [1, 0])
    assert found[10] == found[39] == [1, 2]


def test_ids_pass_each_other_although_one_is_hidden_behind_the_other():
    frames = [list(passing(t)) if abs(t - 20) > 3 else [passing(t)[0]] for t in range(40)]
    found = watch(frames)
    assert found[10] == found[39] == [1, 2]
    assert all(len(ids) == 1 for ids in found[17:24])


def test_who_is_gone_for_long_comes_back_as_somebody_else():
    frames = [[(50.0, 50.0)]] * 10 + [[]] * 30 + [[(50.0, 50.0)]] * 10
    assert watch(frames, patience=40)[-1] == [1]
    assert watch(frames, patience=20)[-1] == [2]


def test_a_piece_of_somebody_is_nobody():
    found = watch([[(50.0, 4.0 * t), (52.0, 4.0 * t + 3)] for t in range(20)])
    assert all(ids[1] == 0 for ids in found)
    assert found[-1][0] == 1


def test_a_flicker_is_nobody():
    found = watch([[(50.0, 50.0), (150.0, 90.0 + 30 * t)] if t % 3 else [(50.0, 50.0)] for t in range(30)])
    assert {n for ids in found for n in ids} == {0, 1}


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_far_apart_nothing_about_slots_or_order_matters(seed, people):
    random = np.random.default_rng(seed)
    speeds = random.uniform(-2, 2, (people, 2))
    starts = np.stack((100.0 * np.arange(people) + 100, np.full(people, 200.0)), 1)
    links, names = Links.none(), {}
    for t in range(25):
        order = random.permutation(people)
        centres = (starts + speeds * t + random.normal(0, 0.5, (people, 2)))[order]
        slots = random.permutation(10)[:people]
        links, ids = link(links, boxes(*centres), slots, patience=20, rate=10)
        for person, known in zip(order.tolist(), ids.tolist(), strict=True):
            assert known == 0 or names.setdefault(person, known) == known
    assert sorted(names.values()) == list(range(1, people + 1))


@pytest.mark.parametrize("centres", [[], [(10.0, 10.0)]])
def test_nobody_and_one_are_fine(centres):
    links, ids = link(Links.none(), boxes(*centres), np.arange(len(centres)), patience=np.inf, rate=25)
    assert ids.tolist() == [0] * len(centres)
    assert len(links.ids) == len(centres)
