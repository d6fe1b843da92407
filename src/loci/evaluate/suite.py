"""What `loci evaluate` does: every measure that a source has the truth for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loci.data.source import Source, Split
from loci.errors import UserError
from loci.evaluate import cater, clevr, clevrer, containment, learning, moving_mnist, tracking
from loci.evaluate.careful import Careful
from loci.evaluate.networks import Opened
from loci.evaluate.report import Entry, Report
from loci.evaluate.watch import Forecaster, find_background
from loci.model import Loci

Progress = Callable[[str, int], AbstractContextManager[Any]]
"""Shows how far a piece of work is: a name and a number of steps to something that is told of each."""

_TRACKED = 60
"""Frames of a Moving MNIST clip in which digits are followed; nothing new happens later."""


@dataclass(frozen=True)
class Job:
    """A network and what it is to be evaluated on."""

    network: Opened
    spec: str
    count: int
    progress: Progress
    seed: int = 0
    split: Split = "test"
    world_seed: int = 0
    length: int | None = None
    batch: int | None = None
    device: str = "cpu"
    background: Path | None = None
    sees_last: bool = False
    cache: Path | None = None
    """Where decoded clips are kept for the next time."""
    left_out: dict[str, None] = field(default_factory=dict)
    """What of the files could not be used and why, as far as that has been found out."""
    opened: dict[Split, Source] = field(default_factory=dict)
    """The files' splits that have been looked through: with thousands of videos that takes its time."""

    @property
    def kind(self) -> str:
        """What comes before the colon of the source."""
        return self.spec.partition(":")[0]

    @property
    def is_world(self) -> bool:
        """Whether clips are made, and can be as long as wanted."""
        return ":" not in self.spec

    def source(self, length: int | None = None, split: Split | None = None) -> Source:
        """The source at the network's own size; `length` frames where it can be chosen and was not."""
        from loci.data.open import open_source

        wanted = self.length or (length if self.is_world else None)
        split, size = split or self.split, self.network.model.size
        if split in self.opened:
            return self.opened[split]
        source = open_source(self.spec, split=split, seed=self.world_seed, size=size, length=wanted)
        if self.is_world:
            if self.cache is not None:
                raise UserError(f"--cache {self.cache}: for files; the clips of {self.spec} are made, not decoded")
            return source
        self.left_out.update(dict.fromkeys(getattr(source, "skipped", ())))
        if self.cache is not None:
            from loci.data.cache import filling

            source = filling(source, self.cache / f"{split}-{size[0]}x{size[1]}-{source.length}")
        self.opened[split] = Careful(source, self.left_out)
        return self.opened[split]

    @cached_property
    def scene(self) -> Tensor | None:
        """The background where clips bring none: the picture that was named, or the paper's mixture over the source."""
        if self.background is not None:
            return read_scene(self.background, self.network.model.size)
        source = self.source()
        if not isinstance(source, Careful):  # a world's clips have theirs
            return None
        # The sample may reach beyond the clips that are scored: what is damaged there is none of theirs.
        return find_background(Careful(source.source, silent=True))

    def options(self) -> dict[str, Any]:
        """What every experiment is told."""
        return {"count": self.count, "batch": self.batch, "device": self.device}

    def stamped(self, report: Report) -> Report:
        """A report that says what it is of."""
        about: dict[str, Entry] = {"network": self.network.name, "source": self.spec, "split": self.split}
        if self.is_world:
            about["world seed"] = self.world_seed
        elif self.left_out:
            about["clips left out"] = len(self.left_out)
            about["the first of them"] = next(iter(self.left_out))
        facts = {**about, **report.facts}
        return dataclasses.replace(report, facts=facts)


def usual_split(spec: str) -> Split:
    """Where a source is scored unless told otherwise: CLEVRER's own test videos have no annotation."""
    return "val" if spec.startswith("clevrer:") else "test"


def read_scene(path: Path, size: tuple[int, int]) -> Tensor:
    """A picture as a background [3,H,W] of the network's size."""
    from loci.track.background import read_image

    pixels = torch.from_numpy(read_image(path)).permute(2, 0, 1)[None].float()
    scene = torch.nn.functional.interpolate(pixels, size, mode="area")
    return scene[0].round().to(torch.uint8)


def evaluate(job: Job) -> Iterator[Report]:
    """One report after the other; each as soon as it is there. A run's folder also tells how it learned."""
    run = Path(job.network.name)
    if (run / learning.METRICS).is_file():
        yield learning.report({run.name: run})
    if job.kind in ("moving_mnist", "mnist"):
        yield job.stamped(forecast_digits(job))
        if isinstance(job.network.model, Loci) and job.is_world:
            yield job.stamped(follow(job, _TRACKED))
        return
    if job.kind == "clevr":
        yield job.stamped(segment(job))
        return
    if job.kind == "cater":
        yield from (job.stamped(report) for report in localise(job))
    if job.kind == "clevrer":
        yield from (job.stamped(imagine(job, protocol)) for protocol in (clevrer.PAPER, clevrer.LATER))
    yield job.stamped(follow(job))


def forecast_digits(job: Job, rival: Opened | None = None) -> Report:
    """Moving MNIST in closed loop, as far as the clips go; with a rival, both on the same clips."""
    source = job.source(moving_mnist.GIVEN + moving_mnist.STEPS)
    steps = source.length - moving_mnist.GIVEN
    if steps < 1:
        raise UserError(f"clips of {source.length} frames: {moving_mnist.GIVEN} are given, so more are needed")
    models: dict[str, Forecaster] = {job.network.short: job.network.model}
    if rival is not None:
        models = {"Loci": job.network.model, "PhyDNet": rival.model}
    models["black frames"] = moving_mnist.Black(source.size)
    with job.progress("digits in closed loop", len(models) * min(job.count, len(source))) as advance:
        return moving_mnist.evaluate(models, source, steps=steps, seed=job.seed, advance=advance, **job.options())


def localise(job: Job) -> Iterator[Report]:
    """CATER's snitch by the network's own head, and what containment does to it; nothing for a network without."""
    network = job.network.loci()
    if network.config.snitch:
        source = job.source()
        with job.progress("the snitch, five seeds", min(job.count, len(source))) as advance:
            found = cater.follow(network, source, scene=job.scene, advance=advance, **job.options())
        name = cater.SUPERVISED if job.network.supervised else "Loci (supervision unknown)"
        report = cater.report("cater", found, job.network.parameters, cater.SEEDS, job.sees_last, name)
        shown = cater.pictures(network, source, scene=job.scene, device=job.device)
        yield dataclasses.replace(report, pictures={"snitch": shown})
        yield containment.report(found)


def segment(job: Job) -> Report:
    """Masks on still images."""
    source = job.source(1)
    with job.progress("still images", min(job.count, len(source))) as advance:
        return clevr.evaluate(
            job.network.loci(), source, seed=job.seed, scene=job.scene, advance=advance, **job.options()
        )


def imagine(job: Job, protocol: clevrer.Protocol) -> Report:
    """CLEVRER in closed loop."""
    source = job.source((protocol.given + protocol.steps) * protocol.stride)
    with job.progress(f"closed loop, {protocol.given} + {protocol.steps}", min(job.count, len(source))) as advance:
        return clevrer.evaluate(
            job.network.loci(), source, protocol, seed=job.seed, scene=job.scene, advance=advance, **job.options()
        )


def follow(job: Job, length: int | None = None) -> Report:
    """Tracking, on anything."""
    source = job.source(length)
    with job.progress("every object", min(job.count, len(source))) as advance:
        return tracking.evaluate(
            job.network.loci(), source, seed=job.seed, scene=job.scene, advance=advance, **job.options()
        )
