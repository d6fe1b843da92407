"""How the network thinks a video goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch

from loci.errors import UserError
from loci.model import Loci, State, StepOutput
from loci.track import Tracking
from loci.track.atomic import atomic
from loci.track.decode import Pixels
from loci.track.draw import colour
from loci.track.fit import Fit
from loci.track.tracker import CLAIM
from loci.track.video_out import video_out

WHOLE = 40.0
"""A growth at which the background is shown in full."""
SIDE = 400
"""Pixels of the longer side of each picture, at least."""


class Imagined(NamedTuple):
    """What came of it."""

    came: int
    """For how many of the imagined frames there was one in the video."""
    error: float
    """Mean absolute difference to those, of 255, at the network's size."""


class Memory:
    """The network's state after the last frame it saw; give `remember` to `open_tracking` as `watch`."""

    def __init__(self) -> None:
        self.state: State | None = None

    def remember(self, state: State, _: StepOutput) -> None:
        """The newest replaces the last."""
        self.state = state


@torch.inference_mode()
def imagine(
    tracking: Tracking, memory: Memory, start: int, count: int, out: Path, told: Callable[[], object] = lambda: None
) -> Imagined:
    """Watch `start` frames, then imagine `count`; write imagined.mp4 and imagined.csv into `out`.

    A background that moves stays as it was last seen.
    """
    fit, model = tracking.fit, tracking.model
    errors: list[float] = []
    with ExitStack() as stack:
        show = stack.enter_context(video_out(out / "imagined.mp4", tracking.facts.rate))
        write = stack.enter_context(_table(out / "imagined.csv", fit))
        seen = 0
        for frame in islice(tracking.frames, start):
            watched = fit.turned(fit.shrink(frame.pixels))
            show(_pair(watched, watched, None))
            seen += 1
            told()
        state = memory.state
        if state is None or seen < start:
            raise UserError(f"the video ends after {seen} frames; --from {start} is beyond that")
        state = _with_background(model, state)
        for number in range(start, start + count):
            shown = (state.frame[0].clamp(0, 1).permute(1, 2, 0) * 255).round().to(torch.uint8).cpu().numpy()
            imagined = fit.turned(shown)
            frame_or_end = next(tracking.coming, None)
            came = None if frame_or_end is None else fit.turned(fit.shrink(frame_or_end.pixels))
            if came is not None:
                errors.append(float(np.abs(came.astype(int) - imagined).mean()))
            show(_pair(came, imagined, state))
            write(number, state)
            state = _further(model, state)
            told()
    return Imagined(len(errors), float(np.mean(errors)) if errors else float("nan"))


def _with_background(model: Loci, state: State) -> State:
    """The state of a network that may not have been shown the background yet, with all of it in the picture.

    From here on it sees what it predicts, and it knows frames with a background only.
    """
    missing = 1 - model.compose.shown()
    model.compose.background_growth.fill_(WHOLE)
    return state._replace(frame=state.frame + state.masks[:, -1:] * state.background * missing)


def _further(model: Loci, state: State) -> State:
    """One frame more in closed loop."""
    state, _ = model.imagine(state, 1)
    return state


@contextmanager
def _table(path: Path, fit: Fit) -> Iterator[Callable[[int, State], None]]:
    """Where every object is imagined to be."""
    with atomic(path) as part, part.open("w", encoding="ascii") as file:
        file.write("frame,slot,row,column,visible\n")

        def write(number: int, state: State) -> None:
            places = fit.to_pixels(state.code.position[0, :, :2].cpu().numpy())
            for slot in np.flatnonzero((state.claimed[0] > CLAIM).cpu().numpy()):
                row, column = places[slot]
                file.write(f"{number},{slot},{row:.2f},{column:.2f},{float(state.visible[0, slot]):.4f}\n")

        yield write


def _pair(came: Pixels | None, imagined: Pixels, state: State | None) -> Pixels:
    """What came beside what was imagined, with the outlines of its slots."""
    height, width = imagined.shape[:2]
    scale = max(1, -(-SIDE // max(height, width)))
    size = (width * scale, height * scale)
    right = np.asarray(cv2.resize(imagined, size, interpolation=cv2.INTER_NEAREST), np.uint8).copy()
    if state is not None:
        labels = state.masks[0].argmax(0).to(torch.uint8).cpu().numpy()
        for slot in np.flatnonzero((state.claimed[0] > CLAIM).cpu().numpy()):
            mine = cv2.resize((labels == slot).astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
            outline, _ = cv2.findContours(mine, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
            cv2.drawContours(right, outline, -1, colour(int(slot)), 1, cv2.LINE_AA)
    left = np.full_like(right, 40)
    if came is not None:
        left = np.asarray(cv2.resize(came, size, interpolation=cv2.INTER_NEAREST), np.uint8)
    bar = np.full((size[1], 4, 3), 90 if state is None else 255, np.uint8)
    return np.concatenate((left, bar, right), 1)
