"""Train a preset until a moment: the last stage's length is chosen on the way, by how fast it goes here.

    PYTHONPATH=src python3 bench/gpu_train.py digits --out RUN --until FILE --early 60 --share 0.55

FILE holds a time of CLOCK_MONOTONIC; the run ends --early seconds before. --share says at which part of the time since
the first updates each stage but the last ends, with its sequence; a stage's length is chosen when it begins, so that a
falling rate has fallen at its end. The config that is saved says how long the stages became: with it, the run is the
same as if they had been asked for, as long as the first stage's rate does not depend on its length. A preset of one
stage gets a second one in which the rate falls to 3%. Where RUN has checkpoints, it goes on.
"""

import argparse
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

from loci import checkpoint, presets
from loci.evaluate.ablations import changed
from loci.kernels import convolution
from loci.train.checkpoint import newest
from loci.train.loop import Trainer
from loci.train.processes import meet
from loci.train.record import Record
from loci.train.schedule import Schedule
from loci.train.signals import Signals

log = logging.getLogger("gpu_train")
STEADY = 100
"""Updates after which everything is recorded."""
RESERVE = 4.0
"""Seconds for the last evaluation, picture and checkpoint."""
CAREFUL = 0.95
"""Of the updates that would fit at the pace seen so far: the rate should have fallen before the time is over."""
UNPLANNED = 10_000_000
"""Updates of a first stage whose end is not known yet."""


class Plan:
    """Is told of every update, and divides the time."""

    def __init__(self, trainer, until, early, shares):
        self.trainer, self.until, self.early = trainer, until, early
        self.shares = (*shares, 1.0)
        self.before = trainer.place.elapsed
        self.steady = trainer.place.update + STEADY
        self.planned = {n for n, s in enumerate(trainer.config.train.stages[: trainer.place.stage + 1]) if n}
        self.begin = self.mark = None

    def __call__(self, update, metrics):
        now = time.monotonic()
        if metrics:
            log.info("%d %s", update, {k: round(v, 5) for k, v in metrics.items()})
        if update == self.steady:
            self.begin, self.mark = now - self.before, (update, now)
        if self.begin is None or update % 500:
            return
        pace = (update - self.mark[0]) / max(1e-9, now - self.mark[1])
        if now - self.mark[1] > 20:
            self.mark = (update, now)
        end = float(self.until.read_text()) - self.early
        due = [self.begin + share * (end - RESERVE - self.begin) for share in self.shares]
        stages, current = list(self.trainer.config.train.stages), self.trainer.place.stage
        done = update - sum(stage.updates for stage in stages[:current])
        if current == 0 and stages[0].updates == UNPLANNED and now >= due[0]:
            stages[0] = replace(stages[0], updates=done)
            current, done = 1, 0
        elif current == 0 or current in self.planned:
            return
        stages[current] = replace(stages[current], updates=done + max(500, int(CAREFUL * pace * (due[current] - now))))
        self.planned.add(current)
        train = replace(self.trainer.config.train, stages=tuple(stages))
        self.trainer.config = replace(self.trainer.config, train=train)
        self.trainer.schedule = Schedule(self.trainer.config)
        log.info("%.0f updates/s: %s", pace, [stage.updates for stage in stages])


def prepared(options):
    """A new run's trainer, or one that goes on."""
    if list((options.out / "checkpoints").glob("*.safetensors")):
        _, content = newest(options.out)
        trainer = Trainer(content.config, meet(content.config.train.device), options.out)
        trainer.restore(content)
        return trainer
    changes = dict(word.split("=", 1) for word in options.set)
    config = changed(presets.PRESETS[options.preset](), {name: json.loads(value) for name, value in changes.items()})
    first, *rest = config.train.stages
    rest = rest or [replace(first, final=0.03, warm_up=0)]
    first = replace(first, updates=UNPLANNED, final=1.0)
    config = replace(config, train=replace(config.train, stages=(first, *rest)))
    trainer = Trainer(config, meet(config.train.device), options.out)
    if options.weights:
        lacking = trainer.model.load_state_dict(checkpoint.read(options.weights).tensors, strict=False)
        log.info("from %s, but for %s", options.weights, lacking)
    trainer.save(options.out)
    return trainer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=Path, required=True)
    parser.add_argument("--early", type=float, default=25)
    parser.add_argument("--share", type=float, nargs="+", default=[0.55])
    parser.add_argument("--set", nargs="*", default=[], help="section.option=JSON")
    parser.add_argument("--weights", type=Path, help="a network to begin with")
    parser.add_argument("--library", action="store_true", help="without our own convolutions")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if options.library:
        convolution.available = lambda: False
    trainer = prepared(options)
    record = Record(options.out, trainer.place.update)
    with Signals() as signals:
        reason = trainer.run(options.out, record, signals, Plan(trainer, options.until, options.early, options.share))
    trainer.close()
    record.close()
    trainer.save(options.out)
    log.info("%s after %d updates, %.0f s", reason, trainer.place.update, trainer.place.elapsed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
