"""What each update is to do, as pure functions of its number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from loci.config import Config, Stage

BETAS = (0.9, 0.999)
"""RAdam's."""
PLAIN = 5
"""RAdam's first updates: the second moment says nothing yet, so they follow the mean gradient as it is."""
SETTLED = 20_000
"""From here on RAdam's rectification is 1 within 1e-8."""


def rectification(count: int) -> float:
    """RAdam's factor r_t of its t-th update, t from 1; 1 in its first five, which are of another kind."""
    if count <= PLAIN:
        return 1.0
    decay = BETAS[1] ** count
    longest = 2 / (1 - BETAS[1]) - 1
    length = longest - 2 * count * decay / (1 - decay)
    return math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))


@dataclass(frozen=True)
class Weights:
    """Of the loss terms."""

    reconstruction: float
    position: float
    object: float
    time: float
    supervision: float


@dataclass(frozen=True)
class Settings:
    """One update, but for its data."""

    rate: float
    """Of the network's parameters."""
    start_rate: float
    """Of the slots' start."""
    background: bool
    """Whether the foreground phase is over: targets are whole frames, and the background's parameters learn."""
    dawn: bool
    """Whether the background in targets is as dark as in predictions."""
    size_growth: float
    """x in sigma = tanh(x) · ..."""
    background_growth: float
    """x in b = tanh(x/2), the brightness of the background."""
    weights: Weights
    clip: float
    """Longest gradient; 0 for any."""


class Schedule:
    """A run's stages and ramps."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.stages = config.train.stages
        ends = torch.tensor([stage.updates for stage in self.stages]).cumsum(0).tolist()
        self.begins = [0, *ends[:-1]]
        self.total = config.train.total
        self.ends = [*ends[:-1], max(self.total, ends[-1])]
        factors = torch.tensor([rectification(n) for n in range(1, SETTLED + 1)], dtype=torch.float64)
        self.paces = [0.0, *factors.cumsum(0).tolist()]

    def stage_number(self, update: int) -> int:
        """Which stage an update belongs to."""
        return next((n for n, end in enumerate(self.ends) if update < end), len(self.stages) - 1)

    def resolution(self, stage: int) -> Literal["coarse", "fine"]:
        """Which frames a stage uses."""
        return self.stages[stage].resolution or self.config.model.resolution

    def settings(self, update: int, stage: int) -> Settings:
        """What update number `update` (from 0) does, in a sequence that belongs to `stage`."""
        train, loss, now = self.config.train, self.config.loss, self.stages[stage]
        brightening = train.growth if train.brightening is None else train.brightening
        rate = now.rate * self._shape(now, update - self.begins[stage])
        return Settings(
            rate=rate,
            start_rate=rate * train.start_rate,
            background=update >= train.foreground,
            dawn=train.dawn,
            size_growth=train.growth * self.grown(update, 0),
            background_growth=brightening * self.grown(update, train.foreground),
            weights=Weights(loss.reconstruction, loss.position, loss.object, loss.time, now.supervision),
            clip=train.clip,
        )

    def grown(self, update: int, since: int) -> float:
        """How far a ramp is that begins at update `since`: about one learning rate an update.

        The published code obtains it with a parameter whose gradient is forced to -1, so that RAdam's start slows it.
        """
        grown = 0.0
        for stage, begin, end in zip(self.stages, self.begins, self.ends, strict=True):
            first, last = max(begin, since), min(update, end)
            if first < last:
                grown += stage.rate * (self._pace(last - since) - self._pace(first - since))
        return grown

    def _pace(self, count: int) -> float:
        """The sum of the rectification over so many updates."""
        return self.paces[min(count, SETTLED)] + max(0, count - SETTLED)

    @staticmethod
    def _shape(stage: Stage, done: int) -> float:
        """The rate within a stage, as a share of the stage's own."""
        warm = min(1.0, (done + 1) / stage.warm_up) if stage.warm_up else 1.0
        way = min(1.0, done / stage.updates)
        return warm * (stage.final + (1 - stage.final) * (1 + math.cos(math.pi * way)) / 2)
