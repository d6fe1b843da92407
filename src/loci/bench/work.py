"""The steps to be measured, on made-up frames: the time does not depend on what is in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from loci import random
from loci.config import Config
from loci.errors import UserError
from loci.kernels.fast import PATIENCE, FastWatch, Precision
from loci.model import Loci
from loci.train.fast import FastStep
from loci.train.optimise import Optimisers
from loci.train.schedule import PLAIN, Schedule
from loci.train.step import Learner, Lesson, new_meters

Kind = Literal["train", "infer"]
FRAMES = 8
"""Different frames that take turns."""


@dataclass(frozen=True)
class Work:
    """One step after the other of an endless sequence."""

    step: Callable[[], object]
    model: Loci
    methods: list[tuple[Any, str, str]]
    """Owner, method and the part of the step that it is."""
    warm_up: int
    """Steps that are unlike the later ones."""
    path: FastStep | FastWatch
    """The fast path."""

    @property
    def off(self) -> str | None:
        """Why the fast path is off, or None if it is on; only known after its first steps."""
        return self.path.off


def resized(config: Config, side: int | None, slots: int | None) -> Config:
    """The config with a square picture of this side, or so many slots."""
    if side is not None and config.model.resolution == "coarse":
        raise UserError(f"--side {side} is for presets with fine frames; this one is coarse")
    model = replace(config.model, slots=slots or config.model.slots)
    return replace(config, model=model if side is None else replace(model, height=side, width=side))


def frames(model: Loci, batch: int) -> list[Tensor]:
    """Random pictures on the device."""
    keys = random.key(0, "bench", torch.arange(FRAMES, device=model.device), device=model.device)
    return list(random.integers(keys, 256, (batch, 3, *model.size)).to(torch.uint8))


def training(config: Config, batch: int, device: torch.device, precision: Precision, fast: bool) -> Work:
    """Updates in the middle of a run, background and regularisers included."""
    model = Loci(config.model).to(device).train()
    rough = precision == "bfloat16"
    learner = Learner(model, rough=rough)
    optimisers = Optimisers(model)
    settings = Schedule(config).settings(config.train.foreground + 1000, len(config.train.stages) - 1)
    shown, at = frames(model, batch), 0
    state = model.start(batch, shown[0][0])
    truth = torch.zeros(batch, 2, device=device) if config.model.snitch else None
    quick = FastStep(learner, model, optimisers, new_meters(device), rough=rough, wanted=fast)

    def step() -> object:
        nonlocal state, at
        lesson = Lesson(shown[at % FRAMES], shown[(at + 1) % FRAMES], snitch=truth)
        at += 1
        state, report, _ = quick(state, [lesson], settings)
        return report

    methods = [*_methods(model), (learner, "forward", "losses"), (optimisers, "step", "optimiser")]
    return Work(step, model, methods, PLAIN + 3, quick)


def tracking(config: Config, batch: int, device: torch.device, precision: Precision, fast: bool) -> Work:
    """Steps in the middle of a video."""
    model = Loci(config.model).to(device).eval()
    shown, at = frames(model, batch), 0
    state = model.start(batch, shown[0][0])
    quick = FastWatch(model, precision=precision, wanted=fast)

    def step() -> object:
        nonlocal state, at
        state, out = quick.step(shown[at % FRAMES], state)
        at += 1
        return out

    late = PATIENCE if quick.on_cpu and fast else 0
    return Work(step, model, _methods(model), late + 2, quick)


def _methods(model: Loci) -> list[tuple[Any, str, str]]:
    decoder = [(model.decoder, name, "decoder") for name in ("forward", "paint", "both")]
    parts = [(getattr(model, part), "forward", part) for part in ("seed", "encoder", "transition", "compose")]
    return [(model, "step", "other"), (model, "draw", "seed"), *parts, *decoder]
