"""Object permanence: does the slot that saw an object know where it is while it cannot be seen, and take it up again?

A slot *holds* an object from the last frame in which the object was visible and matched to that slot. Three numbers
follow, all per object and frame, so that they can be pooled over videos and cut by state and by time hidden:

* error: the distance from the holding slot's position to the object's;
* hidden for: frames since the object was last visible (0 while it is);
* found again: when an object reappears, is it matched to the slot that held it? What has been in a container since it
  was last visible comes back from there, even if the container, as it is lifted, still covers it for some frames.

Matching comes from masks (`metrics_masks.match(...).slot`) or, where there are none, from `match_positions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from loci.data.clip import ABSENT, CARRIED, CONTAINED, STATES, VISIBLE
from loci.evaluate.metrics import Summary, summary

DURATIONS = (1, 10, 20, 40, 80, 160)


class Permanence(NamedTuple):
    """Pooled sightings and reappearances.

    Attributes:
        state: [M], the object's state in a frame in which some slot holds it.
        hidden_for: [M], frames since it was last visible.
        error: [M], distance of the holding slot.
        back_from: [E], what hid an object that reappeared: the last of CONTAINED and CARRIED since it was last visible,
            or else OCCLUDED.
        back_after: [E], for how many frames it was hidden.
        back_same: [E] bool, whether the slot that held it took it up again.
        unheld: [one per batch], objects' frames in which no slot had ever been matched to them.
    """

    state: Tensor
    hidden_for: Tensor
    error: Tensor
    back_from: Tensor
    back_after: Tensor
    back_same: Tensor
    unheld: Tensor


def match_positions(places: Tensor, truth: Tensor, eligible: Tensor, reach: float) -> Tensor:
    """The slot nearest to each object, one to one, [B,T,N]; -1 where none is within reach.

    Args:
        places: [B,T,K,2], where the slots are, in any unit.
        truth: [B,T,N,2], where the objects are, in the same unit.
        eligible: [B,T,N] bool, the objects that can be matched, usually those that are visible.
        reach: the largest distance that counts.
    """
    distance = torch.cdist(truth.double(), places.double())
    # Objects out of question or out of reach weigh nothing, so they take no slot from anybody.
    gain = torch.where((distance <= reach) & eligible[..., None], 1 + reach - distance, 0)
    flat = gain.flatten(0, 1).cpu().numpy()
    slot = torch.full(flat.shape[:2], -1)
    for n, matrix in enumerate(flat):
        for row, column in zip(*linear_sum_assignment(matrix, maximize=True), strict=True):
            if matrix[row, column] > 0:
                slot[n, row] = int(column)
    return slot.reshape(truth.shape[:3]).to(truth.device)


def permanence(places: Tensor, truth: Tensor, state: Tensor, matched: Tensor, patience: int = 5) -> Permanence:
    """Follow every object of a batch of videos.

    Args:
        places: [B,T,K,2], where the slots are, in any unit.
        truth: [B,T,N,2], where the objects are, in the same unit; NaN where that is not known.
        state: [B,T,N], as in `Clip`.
        matched: [B,T,N], the slot matched in this frame, or -1; only looked at where the object is visible.
        patience: frames after a reappearance within which the object must be matched to be found again; until then it
            has to stay in sight. A video that ends sooner, with nothing matched, does not count.
    """
    T = state.shape[1]
    time = torch.arange(T, device=state.device)[None, :, None].expand(state.shape)
    seen, present = state == VISIBLE, state != ABSENT
    matched = torch.where(seen, matched.long(), -1)

    last_match = torch.where(matched >= 0, time, -1).cummax(1).values
    holder = torch.where(last_match >= 0, matched.gather(1, last_match.clamp(min=0)), -1)
    last_seen = torch.where(seen, time, -1).cummax(1).values
    hidden_for = torch.where(last_seen >= 0, time - last_seen, 0)

    inside = (state == CONTAINED) | (state == CARRIED)
    last_inside = torch.where(inside, time, -1).cummax(1).values
    hidden_by = torch.where(last_inside > last_seen, state.gather(1, last_inside.clamp(min=0)), state)

    held = (holder >= 0) & present
    place = places.gather(2, holder.clamp(min=0)[..., None].expand(*holder.shape, 2))
    error = (place - truth).norm(dim=-1)
    counted = held & ~error.isnan()

    before = slice(None, -1), slice(1, None)
    back = seen[:, before[1]] & ~seen[:, before[0]] & held[:, before[0]]
    taken, known = _taken_up(matched, seen, patience)
    back &= known[:, before[1]]
    same = taken[:, before[1]] == holder[:, before[0]]
    return Permanence(
        state[counted],
        hidden_for[counted],
        error[counted],
        hidden_by[:, before[0]][back],
        hidden_for[:, before[0]][back],
        same[back],
        (present & (holder < 0)).sum()[None],
    )


def _taken_up(matched: Tensor, seen: Tensor, patience: int) -> tuple[Tensor, Tensor]:
    """The first slot matched from each frame on while the object stays in sight, or -1; and whether that is settled."""
    T = matched.shape[1]
    slot, open_ = matched.clone(), seen & (matched < 0)
    for later in range(1, patience + 1):
        if later >= T:
            break
        now = open_[:, : T - later]
        now &= seen[:, later:]
        slot[:, : T - later] = torch.where(now, matched[:, later:], slot[:, : T - later])
        now &= matched[:, later:] < 0
    frames_left = T - 1 - torch.arange(T, device=matched.device)[None, :, None]
    return slot, ~(open_ & (frames_left < patience))


def pooled(parts: Iterable[Permanence]) -> Permanence:
    """What several batches gave, as one."""
    return Permanence(*(torch.cat([value.reshape(-1) for value in values]) for values in zip(*parts, strict=True)))


def error_by_state(found: Permanence) -> dict[str, Summary]:
    """The error's distribution in each state."""
    return {name: summary(found.error[found.state == number]) for number, name in enumerate(STATES) if number != ABSENT}


class Span(NamedTuple):
    """A range of durations, first and last included; a last of None is open."""

    first: int
    last: int | None


def spans(starts: Sequence[int] = DURATIONS) -> list[Span]:
    """Consecutive ranges that begin at these durations."""
    return [Span(first, after - 1 if after else None) for first, after in zip(starts, (*starts[1:], None), strict=True)]


def _within(duration: Tensor, span: Span) -> Tensor:
    inside = duration >= span.first
    return inside if span.last is None else inside & (duration <= span.last)


def error_by_duration(
    found: Permanence, ranges: Sequence[Span] | None = None, states: Sequence[int] | None = None
) -> dict[Span, Summary]:
    """The error's distribution by how long the object has been hidden, in these states (default: all hidden ones)."""
    chosen = found.state != VISIBLE
    if states is not None:
        chosen = torch.isin(found.state, torch.tensor(list(states), device=found.state.device, dtype=found.state.dtype))
    return {span: summary(found.error[chosen & _within(found.hidden_for, span)]) for span in ranges or spans()}


class Share(NamedTuple):
    """So many of so many."""

    part: int
    whole: int

    @property
    def value(self) -> float:
        """The ratio; NaN of nothing."""
        return self.part / self.whole if self.whole else float("nan")


def found_again_by_state(found: Permanence) -> dict[str, Share]:
    """The share taken up again by the same slot, by the state objects came back from."""
    hidden = [(n, name) for n, name in enumerate(STATES) if n not in (ABSENT, VISIBLE)]
    return {name: _share(found.back_same[found.back_from == number]) for number, name in hidden}


def found_again_by_duration(found: Permanence, ranges: Sequence[Span] | None = None) -> dict[Span, Share]:
    """The share taken up again by the same slot, by how long objects were hidden."""
    return {span: _share(found.back_same[_within(found.back_after, span)]) for span in ranges or spans()}


def _share(same: Tensor) -> Share:
    return Share(int(same.sum()), len(same))
