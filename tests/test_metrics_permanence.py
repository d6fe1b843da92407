import numpy as np
import pytest
import torch

from loci import random
from loci.data.clip import ABSENT, CARRIED, CONTAINED, OCCLUDED, STATES, VISIBLE
from loci.evaluate import metrics_permanence as perm
from loci.worlds.cater import Cater

V, O, C, A, N = VISIBLE, OCCLUDED, CONTAINED, CARRIED, ABSENT  # noqa: E741


def one(states, matched, error=0.0, patience=5):
    """One object at the origin, two slots; each slot is `error` away, to the right or to the left."""
    T = len(states)
    places = torch.tensor([[error, 0.0], [-error, 0.0]]).expand(1, T, 2, 2)
    state = torch.tensor(states, dtype=torch.uint8)[None, :, None]
    truth = torch.zeros(1, T, 1, 2)
    return perm.permanence(places, truth, state, torch.tensor(matched)[None, :, None], patience)


def test_hidden_frames_are_counted_and_the_same_slot_found_again():
    found = one([V, V, C, C, A, V], [0, 0, -1, -1, -1, 0], error=2.0)
    assert found.state.tolist() == [V, V, C, C, A, V]
    assert found.hidden_for.tolist() == [0, 0, 1, 2, 3, 0]
    assert found.error.tolist() == [2.0] * 6
    assert (found.back_from.tolist(), found.back_after.tolist(), found.back_same.tolist()) == ([A], [3], [True])


def test_a_container_that_still_covers_what_it_lets_go():
    """CATER's cones do while they are lifted: what was inside is occluded for a while, but comes back from inside."""
    found = one([V, C, A, C, O, O, V, O, V], [0, -1, -1, -1, -1, -1, 0, -1, 0])
    assert found.state.tolist() == [V, C, A, C, O, O, V, O, V]
    assert (found.back_from.tolist(), found.back_after.tolist()) == ([C, O], [5, 1])
    assert one([V, O, A, O, V], [0, -1, -1, -1, 0]).back_from.tolist() == [A]


def test_in_caters_world_objects_come_back_from_containers():
    """The states are those of its own script and pictures: a cone that is lifted covers what it had for a while."""
    clip = Cater(split="test", size=(48, 64)).clips([0])
    expected = {"occluded": 0, "contained": 0, "carried": 0}
    for states in clip.state[0].T.tolist():
        why = None
        for state in states:
            if state == V and why is not None:
                expected[STATES[why]] += 1
            if state != O or why is None:
                why = None if state == V else state
    matched = torch.where(clip.state == V, torch.arange(clip.state.shape[2]), -1)
    found = perm.found_again_by_state(perm.permanence(clip.position, clip.position, clip.state, matched))
    assert {name: share.whole for name, share in found.items()} == expected
    assert expected["contained"] + expected["carried"] > 0
    assert all(share.part == share.whole for share in found.values())


def test_another_slot_is_not_the_same():
    found = one([V, O, V, O, V], [0, -1, 1, -1, 1])
    assert found.back_same.tolist() == [False, True]  # the second time it is held by the slot that took it up


def test_a_match_while_hidden_is_not_believed():
    found = one([V, O, O, V], [0, 1, 1, 0])
    assert found.back_same.tolist() == [True]


def test_a_reappearance_may_be_matched_a_little_later():
    late = [0, -1, -1, -1, 0, 0, 0]
    assert one([V, O, V, V, V, V, V], late, patience=2).back_same.tolist() == [True]
    assert one([V, O, V, V, V, V, V], late, patience=1).back_same.tolist() == [False]


def test_a_reappearance_that_is_hidden_again_unmatched_was_missed():
    found = one([V, O, V, O, O, O, O, V, V], [0, -1, -1, -1, -1, -1, -1, 0, 0], patience=3)
    assert found.back_same.tolist() == [False, True]


def test_a_video_that_ends_before_anything_is_matched_says_nothing():
    assert len(one([V, O, V, V], [0, -1, -1, -1], patience=5).back_same) == 0
    assert one([V, O, V, V], [0, -1, -1, -1], patience=1).back_same.tolist() == [False]


def test_never_matched_and_absent():
    found = one([V, O, V], [-1, -1, -1])
    assert (len(found.error), len(found.back_same), found.unheld.item()) == (0, 0, 3)
    assert one([N, N], [0, 0]).unheld.item() == 0
    assert one([O, O, V], [-1, -1, 0]).unheld.item() == 2  # hidden from the start: nobody could know


def test_unknown_places_have_no_error():
    truth = torch.tensor([[[[0.0, 0.0]], [[torch.nan, torch.nan]]]])
    found = perm.permanence(torch.zeros(1, 2, 1, 2), truth, torch.ones(1, 2, 1), torch.zeros(1, 2, 1))
    assert len(found.error) == 1


def naive(places, truth, state, matched, patience):
    """The same, object by object and frame by frame."""
    sightings, returns, unheld = [], [], 0
    B, T, N = state.shape
    for b, n in np.ndindex(B, N):
        holder, since, why = None, None, None
        for t in range(T):
            now = state[b, t, n].item()
            why = now if now in (CONTAINED, CARRIED) else why
            if now == VISIBLE:
                if t and state[b, t - 1, n] not in (VISIBLE, ABSENT) and holder is not None:
                    slots = []
                    for later in range(t, min(t + patience + 1, T)):
                        if state[b, later, n] != VISIBLE:
                            slots.append(-1)
                            break
                        if matched[b, later, n] >= 0:
                            slots.append(matched[b, later, n].item())
                            break
                    if slots or t + patience < T:
                        same = bool(slots) and slots[0] == holder
                        returns.append((why or state[b, t - 1, n].item(), t - 1 - since, same))
                since, why = t, None
                if matched[b, t, n] >= 0:
                    holder = matched[b, t, n].item()
            if now == ABSENT:
                continue
            if holder is None:
                unheld += 1
            else:
                away = (places[b, t, holder] - truth[b, t, n]).norm().item()
                sightings.append((now, t - since, away))
    return sightings, returns, unheld


@pytest.mark.parametrize("patience", [0, 2, 5, 40])
def test_against_a_slow_reading_of_the_rules(patience):
    key = random.key(7, patience)
    B, T, N, K = 60, 25, 3, 4
    # Stretches of a state: a new one is drawn in one frame of four.
    draw = 1 + random.integers(random.fold(key, "state"), 4, (B, T, N))
    fresh = random.uniform(random.fold(key, "fresh"), (B, T, N)) < 0.25
    stretch = torch.where(fresh, torch.arange(T)[None, :, None], 0).cummax(1).values
    state = draw.gather(1, stretch)
    matched = random.integers(random.fold(key, "match"), K + 2, (B, T, N)) - 2
    places, truth = (random.uniform(random.fold(key, n), (B, T, m, 2)) for n, m in (("places", K), ("truth", N)))
    found = perm.permanence(places, truth, state, matched.clamp(min=-1), patience)
    sightings, returns, unheld = naive(places, truth, state, matched.clamp(min=-1), patience)
    assert found.unheld.item() == unheld
    got = sorted(zip(found.state.tolist(), found.hidden_for.tolist(), found.error.tolist(), strict=True))
    np.testing.assert_allclose(got, sorted(sightings), rtol=1e-5, atol=1e-6)
    back = zip(found.back_from.tolist(), found.back_after.tolist(), found.back_same.tolist(), strict=True)
    assert sorted(back) == sorted(returns)
    assert len(returns) > 50


def test_match_positions_is_one_to_one_and_within_reach():
    places = torch.tensor([[[[0.0, 0.0], [10.0, 0.0]]]])
    truth = torch.tensor([[[[1.0, 0.0], [2.0, 0.0], [30.0, 0.0]]]])
    everyone = torch.ones(1, 1, 3, dtype=torch.bool)
    assert perm.match_positions(places, truth, everyone, reach=5).tolist() == [[[0, -1, -1]]]
    assert perm.match_positions(places, truth, everyone, reach=8.5).tolist() == [[[0, 1, -1]]]
    assert perm.match_positions(places, truth, everyone & (truth[..., 0] > 1), reach=5).tolist() == [[[-1, 0, -1]]]


def test_match_positions_survives_unknown_places():
    truth = torch.full((1, 1, 1, 2), torch.nan)
    assert perm.match_positions(torch.zeros(1, 1, 2, 2), truth, torch.ones(1, 1, 1, dtype=torch.bool), 5).item() == -1


def test_tables():
    found = perm.pooled([one([V, C, C, C, V], [0, -1, -1, -1, 0], error=3.0), one([V, O, V], [0, -1, 1], error=1.0)])
    errors = perm.error_by_state(found)
    assert list(errors) == ["visible", "occluded", "contained", "carried"]
    assert (errors["contained"].number, errors["contained"].median) == (3, 3.0)
    assert (errors["occluded"].mean, errors["carried"].number) == (1.0, 0)
    ranges = perm.spans((1, 2))
    assert ranges == [(1, 1), (2, None)]
    curve = perm.error_by_duration(found, ranges)
    assert [row.number for row in curve.values()] == [2, 2]
    assert perm.error_by_duration(found, ranges, states=[CONTAINED])[ranges[0]].mean == 3.0
    again = perm.found_again_by_state(found)
    assert again["contained"] == (1, 1)
    assert again["occluded"].value == 0
    assert np.isnan(again["carried"].value)
    assert [share.whole for share in perm.found_again_by_duration(found, ranges).values()] == [1, 1]
