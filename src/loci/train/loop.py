"""The training loop: sequence after sequence, an update for every frame, and what happens in between."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loci import random
from loci.checkpoint import BEST, Content, save
from loci.config import Config, ModelConfig
from loci.model import Loci, State
from loci.model.gatelord import GateL0RD
from loci.train.checkpoint import Place, group, restore_state, save_training, tidy
from loci.train.fast import FastStep
from loci.train.feed import Batch, Feed, open_data
from loci.train.optimise import Optimisers
from loci.train.picture import training_picture
from loci.train.processes import Processes
from loci.train.record import Record, Tell
from loci.train.scene import named_scene
from loci.train.schedule import Schedule
from loci.train.signals import REASONS, Reason, Signals
from loci.train.step import STATISTICS, Learner, new_meters
from loci.train.validate import MEASURES, evaluate

log = logging.getLogger(__name__)

LOOK_EVERY = 10
"""Updates between two looks at what other processes want, and at what a GPU has counted."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}


class Trainer:
    """A run: what it has (network, optimisers, data) and where it is (`place`, `state`)."""

    def __init__(self, config: Config, processes: Processes, out: Path | None = None) -> None:
        train = config.train
        self.config = config
        self.processes = processes
        self.out = out
        self.schedule = Schedule(config)
        self.entries = processes.entries(config.data.batch)
        self.place = Place()
        self.state: State | None = None
        self.metrics: dict[str, float] = {}
        self.meters = new_meters(processes.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(train.seed)
            self.model = self._ready(Loci(self._model_config(0)))
        self.optimisers = Optimisers(self.model)
        self.step = self._step()
        self.feed, self.held_out = self._feeds()
        self.measured = (0.0, 0, 0.0)  # seconds, updates and waiting at the last line of metrics

    def _model_config(self, stage: int) -> ModelConfig:
        return replace(self.config.model, resolution=self.schedule.resolution(stage))

    def _ready(self, model: Loci) -> Loci:
        for layer in model.transition.recurrence:
            if isinstance(layer.cell, GateL0RD):
                layer.cell.sparsity *= self.processes.world  # a sum over the batch, where processes take the mean
        return model.to(self.processes.device, DTYPES[self.config.train.precision]).train()

    def _step(self) -> FastStep:
        """One update of the network that is there now."""
        train, processes = self.config.train, self.processes
        rough = train.precision == "bfloat16"
        learner = processes.wrap(Learner(self.model, rough=rough))
        share = None if processes.world == 1 else processes.share
        return FastStep(learner, self.model, self.optimisers, self.meters, share=share, rough=rough, wanted=train.fast)

    def _feeds(self) -> tuple[Feed, Feed | None]:
        """To learn from, and to be tested on."""
        config, device, seed = self.config, self.processes.device, self.config.train.seed
        source = open_data(config, "train", self.model.size)
        scene = named_scene(config, source, self.out, device, writes=self.processes.first)
        out = self.out if self.processes.first else None
        taught = any(stage.supervision > 0 for stage in config.train.stages)
        feed = Feed(
            source, config.data, seed=seed, entries=self.entries, device=device, snitch=taught, scene=scene, out=out
        )
        if not (config.train.evaluate_every or config.train.picture_every):
            return feed, None
        source, data = open_data(config, "val", self.model.size), replace(config.data, clips=None)
        held_out = Feed(source, data, seed=seed, entries=self.entries, device=device, snitch=False, scene=scene)
        return feed, held_out

    def restore(self, content: Content) -> None:
        """Go on where a checkpoint was made."""
        self.place = Place(**content.extra["place"])
        self.enter(self.place.stage)
        self.model.load_state_dict({n: t for n, t in content.tensors.items() if "/" not in n})
        self.optimisers.restore(group(content.tensors, "optimiser"), self.place.counts)
        for name, value in group(content.tensors, "meter").items():
            self.meters[name].copy_(value)
        if content.extra["fresh"] is not None:
            template = self.model.start(len(self.entries))
            self.state = restore_state(template, content.tensors, self.entries, content.extra["fresh"])

    def enter(self, stage: int) -> bool:
        """Take up a stage: where its frames are of another size (True), a new network with the same parameters."""
        config = self._model_config(stage)
        if config == self.model.config:
            return False
        old, waited = self.model, self.feed.waited
        self.model = self._ready(Loci(config))
        self.model.load_state_dict(old.state_dict(keep_vars=True), assign=True)
        self.step = self._step()
        self.close()
        self.feed, self.held_out = self._feeds()
        self.feed.waited = waited
        log.info("stage %d: %s frames of %dx%d", stage + 1, config.resolution, *self.model.size)
        return True

    def updates(self) -> list[list[int]]:
        """The frames of each update of a sequence; -1 is a bootstrap step on the first one."""
        times = [-1] * self.config.model.bootstrap + list(range(self.feed.source.length - 1))
        window = self.config.train.window
        return [times[i : i + window] for i in range(0, len(times), window)]

    def run(self, out: Path, record: Record | None, signals: Signals, tell: Tell) -> Reason:
        """Train until something stops it, from wherever it is."""
        began, before = time.monotonic(), self.place.elapsed
        self.measured = (before, self.place.update, self.feed.waited)
        plan = self.updates()
        while True:
            if self.place.cursor == len(plan):
                self.place.sequence, self.place.cursor, self.state = self.place.sequence + 1, 0, None
            if self.place.cursor == 0:
                self.place.stage = self.schedule.stage_number(self.place.update)
                if self.enter(self.place.stage):
                    self.place.best = None  # errors at another size are other errors
            reason = self._wait(out, signals)
            if reason is not None:
                return reason
            batch = self.feed.get(self.place.sequence)
            if self.place.update == 0:
                self.save(out)  # not before there is something to learn from
            for cursor in range(self.place.cursor, len(plan)):
                self.learn(batch, plan[cursor])
                self.place.update += 1
                self.place.cursor = cursor + 1
                self.place.elapsed = before + time.monotonic() - began
                reason = self._between(out, record, signals, tell)
                if reason is not None:
                    return reason

    def _wait(self, out: Path, signals: Signals) -> Reason | None:
        """Until the frames of this sequence are there in all processes; or why to stop, with a checkpoint saved."""
        ready = self.feed.ready(self.place.sequence, lambda: signals.received is not None)
        wish = self.processes.agree(-1 if ready else signals.wish())
        if wish < 0:
            return None
        self.save(out)
        return REASONS[wish]

    def learn(self, batch: Batch, times: list[int]) -> None:
        """One update."""
        settings = self.schedule.settings(self.place.update, self.place.stage)
        state = self._start(batch) if self.state is None else self.state
        lessons = [batch.lesson(time)._replace(blind=self._blind(time)) for time in times]
        self.state, _, _ = self.step(state, lessons, settings)

    def _blind(self, time: int) -> Tensor | None:
        """Who sees its own prediction at frame `time`, of the entries that are here; None if nobody ever does."""
        train = self.config.train
        if not any(stage.blind for stage in train.stages):
            return None
        share = train.stages[self.place.stage].blind if time >= train.given else 0.0
        many = round(share * self.config.data.batch)
        return torch.arange(self.entries.start, self.entries.stop, device=self.processes.device) < many

    def _start(self, batch: Batch) -> State:
        entries = torch.arange(self.entries.start, self.entries.stop, device=self.processes.device)
        keys = random.key(
            self.config.train.seed, "sequence", self.place.sequence, entries, device=self.processes.device
        )
        return self.model.start(len(self.entries), batch.background[:, 0].contiguous(), keys=keys)

    def _between(self, out: Path, record: Record | None, signals: Signals, tell: Tell) -> Reason | None:
        """What is due after an update; and whether to stop."""
        train, update = self.config.train, self.place.update
        metrics = None
        if update % train.log_every == 0:
            metrics = self._measure()
            if record is not None:
                record.write(update, metrics, "train")
        reason = self._stop(signals)
        last = reason in ("finished", "time is up")
        if train.evaluate_every and (update % train.evaluate_every == 0 or last):
            self._evaluate(out, record)
        if train.picture_every and (update % train.picture_every == 0 or last):
            self._picture(record)
        if reason == "not finite":
            if record is not None:
                record.offender(self._offender())
        elif reason is not None or (update % train.save_every == 0 and not float(self.meters["in_a_row"])):
            self.save(out)
        tell(update, metrics)
        return reason

    def _stop(self, signals: Signals) -> Reason | None:
        """Why to stop now, the same in all processes."""
        train, update = self.config.train, self.place.update
        wish = -1
        if update >= self.schedule.total:
            wish = 0
        elif train.minutes is not None and self.place.elapsed >= 60 * train.minutes:
            wish = 1
        lonely = self.processes.world == 1
        look = update % LOOK_EVERY == 0 or wish == 0
        if look or self.processes.device.type == "cpu":
            if float(self.meters["longest"]) >= train.patience:
                wish = 2
            self.meters["longest"].copy_(self.meters["in_a_row"])
        wish = max(wish, signals.wish())
        if not lonely:
            wish = self.processes.agree(wish) if look else -1
        return None if wish < 0 else REASONS[wish]

    def _measure(self) -> dict[str, float]:
        """The means since the last time, which are then forgotten; the only place that waits for the device."""
        kept = float(self.meters["kept"])
        means = (self.processes.mean(self.meters["sum"]) / max(kept, 1)).tolist()
        now = (self.place.elapsed, self.place.update, self.feed.waited)
        metrics = dict(zip(STATISTICS, means, strict=True)) if kept else {}
        rate = self.schedule.settings(self.place.update - 1, self.place.stage).rate
        metrics |= {"dropped": float(self.meters["dropped"]), "rate": rate, "seconds": self.place.elapsed}
        seconds = now[0] - self.measured[0]
        if seconds > 0:
            metrics["updates_per_second"] = (now[1] - self.measured[1]) / seconds
            metrics["waiting"] = (now[2] - self.measured[2]) / seconds
        self.measured = now
        for name in ("sum", "kept", "updates"):
            self.meters[name].zero_()
        self.metrics |= metrics
        return metrics

    def _evaluate(self, out: Path, record: Record | None) -> None:
        """Measure on held-out sequences, each process on its share; keep the best network."""
        if self.held_out is None:
            return
        count = min(self.config.train.evaluate_clips, self.held_out.count)
        clips = list(range(count))[self.processes.rank :: self.processes.world]
        total = evaluate(self.model, self.held_out, clips, len(self.entries), self.config.train.seed)
        total = self.processes.mean(total)
        values = dict(zip(MEASURES, (total[:-1] / total[-1]).tolist(), strict=True))
        self.metrics |= {f"held_out/{name}": value for name, value in values.items()}
        if record is not None:
            record.write(self.place.update, values, "held_out")
        whole = self.place.update > self.config.train.foreground  # before, frames come out without their background
        if self.place.best is None or values["l2_object"] < self.place.best:
            self.place.best = values["l2_object"] if whole else None
            if self.processes.first:
                run = replace(self.config, model=self.model.config)
                save(out / BEST, self.model, step=self.place.update, extra={"held_out": values}, run=run)

    def _picture(self, record: Record | None) -> None:
        """Drawn by all processes, so that none has to wait for another; kept by the first."""
        if self.held_out is None:
            return
        image = training_picture(self.model, self.held_out.again([0]), self.config.train.seed)
        if record is not None:
            record.picture(self.place.update, image)

    def save(self, out: Path) -> None:
        """A checkpoint, by the first process."""
        state = None if self.state is None else self.processes.gather(self.state)
        if self.processes.first:
            save_training(out, self.config, self.model, self.optimisers, state, self.place, self.meters)
            tidy(out, self.config.train.keep)

    def _offender(self) -> dict[str, Any]:
        """What it takes to see again what was not finite."""
        place, data = self.place, self.config.data
        return {
            "seed": self.config.train.seed,
            "update": place.update,
            "sequence": place.sequence,
            "frame": self.updates()[place.cursor - 1],
            "clips": self.feed.indices(place.sequence, range(data.batch)),
            "source": data.source,
        }

    def close(self) -> None:
        """Let go of the data's workers."""
        for feed in (self.feed, self.held_out):
            if feed is not None:
                feed.close()
