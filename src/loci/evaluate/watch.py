"""A network watching a source: batches in bounded memory, the same randomness whatever the batch, no label in sight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from loci import random
from loci.data.clip import Clip
from loci.data.source import Source
from loci.errors import UserError
from loci.evaluate.careful import UnreadableError
from loci.evaluate.quick import Quick
from loci.model import Code, Loci, State, StepOutput
from loci.model.state import tree_map

MEMORY = {"cpu": 2**29, "cuda": 2**33}
"""Bytes of clips held at once, unless a batch size is asked for."""
MOST = {"cpu": 64, "cuda": 1000}
"""Clips at once."""
_OBJECTS = 10  # masks reckoned with when clips come with labels
_WORK = 2048  # bytes that a step takes for each pixel of each slot, a few feature maps' worth
_SHARE = 0.2  # of a GPU's free memory that a step may take

WORTH = 1000
"""Steps of one shape, from which on recording them is taken to be worth its time."""
ENOUGH = "enough"
"""What `advance` answers to stop after a batch, when the time is up; what was seen until then is scored."""
Advance = Callable[[int], Any]
Disturb = Callable[[int], Callable[[Code], Code]]
"""For each frame's number, what is done to the encoder's code."""


class Forecaster(Protocol):
    """A model that watches and then imagines; `frame` of its outputs is the frame after the one it saw, [B,3,H,W]."""

    size: tuple[int, int]

    def start(
        self, batch: int = 1, background: Tensor | None = None, *, seed: int = 0, keys: Tensor | None = None
    ) -> Any:
        """A state that has seen nothing."""
        ...

    def bootstrap(self, frame: Tensor, state: Any) -> Any:
        """Get ready with the first frame."""
        ...

    def step(self, frame: Tensor, state: Any) -> tuple[Any, Any]:
        """See a frame [B,3,H,W] of bytes."""
        ...

    def imagine(self, state: Any, steps: int) -> tuple[Any, Any]:
        """Run on in closed loop; the outputs have time in dimension 1."""
        ...


def silent(_: int) -> None:
    """Progress that nobody watches."""


def batch_size(source: Source, count: int, model: Any, *, labels: bool, device: torch.device | str) -> int:
    """How many clips go side by side: what memory holds, in batches of one size where the count allows it."""
    height, width = source.size
    kind = torch.device(device).type
    clip = source.length * height * width * (3 + 2 * _OBJECTS * labels)
    most = min(MOST.get(kind, MOST["cpu"]), MEMORY.get(kind, MEMORY["cpu"]) // clip)
    if kind == "cuda":
        slots = model.config.slots if isinstance(model, Loci) else 1
        most = min(most, int(_SHARE * torch.cuda.mem_get_info(device)[0]) // (slots * height * width * _WORK))
    return equal(count, max(1, most))


def equal(count: int, most: int) -> int:
    """The size of as few batches as there can be, as equal as they can be."""
    return -(-count // -(-count // most))


def quickened(model: Any, source: Source, count: int, frames: int, **options: Any) -> Any:
    """The model, or its recorded steps where there is a GPU and enough of them to be worth the recording.

    Args:
        model: Loci, or anything else, which is returned as it is.
        source: Of the clips.
        count: How many will be watched.
        frames: Steps that each takes.
        options: `batch`, `labels` and `device` as `clips_in_batches` is told.
    """
    if not isinstance(model, Loci) or model.device.type != "cuda":
        return model
    count = min(count, len(source))
    batch = options.pop("batch", None) or batch_size(source, count, model, **options)
    return Quick(model) if count // batch * frames >= WORTH else model


def clips_in_batches(
    source: Source,
    count: int,
    *,
    model: Any = None,
    batch: int | None = None,
    labels: bool = True,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Iterator[Clip]:
    """The first `count` clips of a source, or all it has if that is fewer; `advance` is told after each batch."""
    if count < 1:
        raise UserError(f"count {count}: ask for 1 clip or more")
    count = min(count, len(source))
    if count == 0:
        raise UserError("this source has no clips in this split: choose another split, or check the folder")
    size, fault = batch or batch_size(source, count, model, labels=labels, device=device), None
    some = False
    for first in range(0, count, size):
        wanted = range(first, min(first + size, count))
        try:
            clip = source.clips(wanted, labels=labels, device=device)
        except UnreadableError as error:
            fault = error
        else:
            some = True
            yield clip
        if advance(len(wanted)) == ENOUGH and some:
            return
    if not some:
        raise UserError(f"none of {count} clips could be read; first: {fault}")


def keys_of(clip: Clip, seed: int) -> Tensor:
    """The randomness of each clip [B]: a function of the seed and the clip's number alone."""
    numbers = torch.arange(clip.batch) if clip.index is None else clip.index
    return random.key(seed, "evaluation", numbers.to(clip.frames.device))


def require(clip: Clip, *names: str) -> None:
    """Refuse a clip that lacks a label that the measure is made of."""
    missing = [name for name in names if getattr(clip, name) is None]
    if missing:
        raise UserError(f"this source does not know {' and '.join(missing)} of its clips, which this measure needs")


def begin(model: Any, clip: Clip, seed: int, scene: Tensor | None = None) -> Any:
    """A state that has been shown the first frame the model's number of times.

    Args:
        model: Loci, or another forecaster.
        clip: What will be watched.
        seed: Of the evaluation.
        scene: [3,H,W], the background where clips bring none; None is black.
    """
    background = scene if clip.background is None else clip.background[:, 0]
    state = model.start(clip.batch, background, keys=keys_of(clip, seed))
    return model.bootstrap(clip.frames[:, 0], state)


def watch(
    model: Loci | Quick, clip: Clip, seed: int, *, scene: Tensor | None = None, disturb: Disturb | None = None
) -> Iterator[tuple[State, StepOutput]]:
    """See every frame of a clip; the output at frame t predicts frame t+1.

    Call it under `torch.no_grad()`. State and output are good until the next is asked for: copy what is kept.
    """
    state = begin(model, clip, seed, scene)
    moving = clip.background is not None and clip.background.shape[1] > 1
    for t in range(clip.length):
        background = clip.background[:, t] if moving and clip.background is not None else None
        change = None if disturb is None else disturb(t)
        state, output = model.step(clip.frames[:, t], state, background=background, disturb=change)
        yield state, output


def forecast(
    model: Any, clip: Clip, seed: int, given: int, steps: int, *, scene: Tensor | None = None
) -> Iterator[Any]:
    """See `given` frames, then run on in closed loop: the outputs for frames given, given+1, ..., one at a time.

    The first prediction comes from the last frame seen, so `steps` predictions take `steps` - 1 imagined ones. Call it
    under `torch.no_grad()`; an output is good until the next is asked for.
    """
    if clip.length < given:
        raise UserError(f"clips of {clip.length} frames are too short to be given {given}: ask for a longer --length")
    state, output = begin(model, clip, seed, scene), None
    for t in range(given):
        state, output = model.step(clip.frames[:, t], state)
    yield output
    for _ in range(1, steps):
        state, outputs = model.imagine(state, 1)
        yield tree_map(lambda x: x[:, 0], outputs)


def find_background(source: Source, clips: int = 24, frames: int = 8) -> Tensor | None:
    """The scene of a source whose clips bring none: the paper's mixture of Gaussians, over a sample of its frames.

    None where the clips have their own.
    """
    from loci.track.background import mixture

    sample = []
    for clip in clips_in_batches(source, clips, batch=1, labels=False):
        if clip.background is not None:
            return None
        times = np.linspace(0, clip.length - 1, min(frames, clip.length)).round().astype(int)
        sample += [np.ascontiguousarray(clip.frames[0, t].permute(1, 2, 0).cpu().numpy()) for t in times]
    return torch.from_numpy(mixture(sample)).permute(2, 0, 1)
