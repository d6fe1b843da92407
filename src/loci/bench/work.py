"""The steps to be measured, on made-up frames: the time does not depend on what is in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from loci import random
from loci.config import Config
from loci.errors import UserError
from loci.kernels.fast import FastStep, FastWatch
from loci.model import Loci, State
from loci.model.precision import rough
from loci.train.optimise import Optimisers
from loci.train.schedule import PLAIN, Schedule, Settings
from loci.train.step import Learner, Lesson, train_step

Kind = Literal["train", "infer"]
Precision = Literal["float32", "bfloat16"]
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
    off: str | None
    """Why the fast path is off, or None if it is on."""


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


class Rough(nn.Module):
    """A learner whose convolutions run in bfloat16; the weights and the optimiser stay in float32."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, state: State, lessons: Sequence[Lesson], settings: Settings) -> tuple[Tensor, State, Tensor]:
        """What the learner returns."""
        with rough(state.time.device.type):
            loss, state, report = self.learner(state, lessons, settings)
        return loss, state, report


def training(config: Config, batch: int, device: torch.device, precision: Precision, fast: bool) -> Work:
    """Updates in the middle of a run, background and regularisers included."""
    model = Loci(config.model).to(device).train()
    plain = Learner(model)
    learner = Rough(plain) if precision == "bfloat16" else plain
    optimisers = Optimisers(model)
    settings = Schedule(config).settings(config.train.foreground + 1000, len(config.train.stages) - 1)
    shown, at = frames(model, batch), 0
    state = model.start(batch, shown[0][0])
    truth = torch.zeros(batch, 2, device=device) if config.model.snitch else None
    quick = FastStep(learner, model, optimisers) if fast else None

    def step() -> object:
        nonlocal state, at
        lesson = Lesson(shown[at % FRAMES], shown[(at + 1) % FRAMES], snitch=truth)
        at += 1
        if quick is None:
            state, report, _ = train_step(learner, model, optimisers, state, [lesson], settings)
        else:
            state, report, _ = quick(state, [lesson], settings)
        return report

    methods = [*_methods(model), (plain, "forward", "losses"), (optimisers, "step", "optimiser")]
    return Work(step, model, methods, PLAIN + 2, quick.off if quick else "not asked for")


def tracking(config: Config, batch: int, device: torch.device, precision: Precision, fast: bool) -> Work:
    """Steps in the middle of a video."""
    model = Loci(config.model).to(device).eval()
    shown, at = frames(model, batch), 0
    state = model.start(batch, shown[0][0])
    quick = FastWatch(model) if fast else None

    def step() -> object:
        nonlocal state, at
        context: AbstractContextManager = rough(device.type) if precision == "bfloat16" else nullcontext()
        with torch.inference_mode(quick is None), torch.no_grad(), context:
            state, out = (quick or model.step)(shown[at % FRAMES], state)
        at += 1
        return out

    return Work(step, model, _methods(model), 2, quick.off if quick else "not asked for")


def _methods(model: Loci) -> list[tuple[Any, str, str]]:
    decoder = [(model.decoder, name, "decoder") for name in ("forward", "paint", "both")]
    parts = [(getattr(model, part), "forward", part) for part in ("seed", "encoder", "transition", "compose")]
    return [(model, "step", "other"), (model, "draw", "seed"), *parts, *decoder]
