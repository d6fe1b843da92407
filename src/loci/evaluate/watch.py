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
from loci.model import Code, Loci, State, StepOutput

MEMORY = {"cpu": 2**29, "cuda": 2**32}
"""Bytes of clips held at once, unless a batch size is asked for."""
_OBJECTS = 10  # masks reckoned with when clips come with labels
_MOST = 64

Advance = Callable[[int], Any]
Disturb = Callable[[int], Callable[[Code], Code]]
"""For each frame's number, what is done to the encoder's code."""


class Forecaster(Protocol):
    """A model that watches and then imagines; `outputs.frame` is [B,T,3,H,W], each the frame after the one it saw."""

    size: tuple[int, int]

    def start(
        self, batch: int = 1, background: Tensor | None = None, *, seed: int = 0, keys: Tensor | None = None
    ) -> Any:
        """A state that has seen nothing."""
        ...

    def bootstrap(self, frame: Tensor, state: Any) -> Any:
        """Get ready with the first frame."""
        ...

    def observe(self, frames: Tensor, state: Any) -> tuple[Any, Any]:
        """See frames [B,T,3,H,W]."""
        ...

    def imagine(self, state: Any, steps: int) -> tuple[Any, Any]:
        """Run on in closed loop."""
        ...


def silent(_: int) -> None:
    """Progress that nobody watches."""


def clips_in_batches(
    source: Source,
    count: int,
    *,
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
    height, width = source.size
    weight = source.length * height * width * (3 + 2 * _OBJECTS * labels)
    size = batch or max(1, min(_MOST, MEMORY.get(torch.device(device).type, 2**29) // weight))
    for first in range(0, count, size):
        clip = source.clips(range(first, min(first + size, count)), labels=labels, device=device)
        yield clip
        advance(clip.batch)


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
    model: Loci, clip: Clip, seed: int, *, scene: Tensor | None = None, disturb: Disturb | None = None
) -> Iterator[tuple[State, StepOutput]]:
    """See every frame of a clip; the output at frame t predicts frame t+1.

    Call it under `torch.inference_mode()`.
    """
    state = begin(model, clip, seed, scene)
    moving = clip.background is not None and clip.background.shape[1] > 1
    for t in range(clip.length):
        background = clip.background[:, t] if moving and clip.background is not None else None
        change = None if disturb is None else disturb(t)
        state, output = model.step(clip.frames[:, t], state, background=background, disturb=change)
        yield state, output


def forecast(
    model: Forecaster, clip: Clip, seed: int, given: int, steps: int, *, scene: Tensor | None = None, chunk: int = 10
) -> Iterator[Any]:
    """See `given` frames, then run on in closed loop: outputs for frames given, given+1, ..., `chunk` at a time.

    The first prediction comes from the last frame seen, so `steps` predictions take `steps` - 1 imagined ones. Call it
    under `torch.inference_mode()`.
    """
    if clip.length < given:
        raise UserError(f"clips of {clip.length} frames are too short to be given {given}: ask for a longer --length")
    state = begin(model, clip, seed, scene)
    outputs = None
    for t in range(given):
        state, outputs = model.observe(clip.frames[:, t : t + 1], state)
    yield outputs
    for done in range(1, steps, chunk):
        state, outputs = model.imagine(state, min(chunk, steps - done))
        yield outputs


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
