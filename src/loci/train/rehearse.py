"""What a run would take, from a few measured updates that leave nothing behind."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from loci.config import Config
from loci.train.loop import Trainer
from loci.train.processes import together

STEPS = 3


@dataclass(frozen=True)
class Rehearsal:
    """What came out."""

    parameters: dict[str, int]
    """Of each part of the network."""
    seconds: list[float]
    """For an update, in each stage."""
    total: float
    """Seconds for what is left of the run, but for the evaluations."""
    device: str


def rehearse(config: Config, done: int = 0) -> Rehearsal:
    """Measure a few updates of every stage, on sequences of two frames; so many updates are done already."""
    data = replace(config.data, length=2, background=None)
    train = replace(config.train, evaluate_every=0, picture_every=0)
    short = replace(config, data=data, train=train)
    return together(config.train.device, lambda processes: _rehearse(Trainer(short, processes), done))


def _rehearse(trainer: Trainer, done: int) -> Rehearsal:
    parameters: dict[str, int] = {}
    for name, parameter in trainer.model.named_parameters():
        part = name.split(".")[0]
        parameters[part] = parameters.get(part, 0) + parameter.numel()
    schedule = trainer.schedule
    measured: dict[str, float] = {}
    for stage in range(len(schedule.stages)):
        resolution = schedule.resolution(stage)
        if resolution not in measured:
            measured[resolution] = _measure(trainer, stage)
    seconds = [measured[schedule.resolution(stage)] for stage in range(len(schedule.stages))]
    total = sum(
        max(0, min(end, schedule.total) - max(begin, done)) * pace
        for begin, end, pace in zip(schedule.begins, schedule.ends, seconds, strict=True)
    )
    trainer.close()
    return Rehearsal(parameters, seconds, total, str(trainer.processes.device))


def _measure(trainer: Trainer, stage: int) -> float:
    """Seconds for an update; the first ones do not count."""
    trainer.place.stage = stage
    trainer.enter(stage)
    trainer.state = None
    batch = trainer.feed.get(0)
    begun = 0.0
    for step in range(2 * STEPS):
        if step == STEPS:
            _wait(trainer.processes.device)
            begun = time.perf_counter()
        trainer.learn(batch, [0] * trainer.config.train.window)
    _wait(trainer.processes.device)
    return (time.perf_counter() - begun) / STEPS


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
