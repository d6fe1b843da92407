"""`loci train`: begin a run from a preset, go on with one, or see what it would take."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loci import presets
from loci.commands import console, train_phydnet
from loci.config import Config, DataConfig, LossConfig, ModelConfig, TrainConfig, from_dict, to_dict
from loci.errors import UserError

if TYPE_CHECKING:
    from loci.checkpoint import Content
    from loci.train.run import Outcome

EXAMPLES = """
  loci train smoke --out runs/smoke
  loci train moving_mnist --out runs/digits --data.batch 16 --train.minutes 60
  loci train cater --out runs/cater --data.source cater --data.path /data/CATER
  loci train video --data.path tank.mp4 --out runs/tank --model.slots 20
  loci train --resume runs/digits --train.updates 400000
  loci train runs/digits/config.json --out runs/again --train.seed 1
  loci train phydnet --out runs/phydnet
  torchrun --nproc-per-node 2 -m loci train moving_mnist --out runs/digits
"""


@dataclass(frozen=True)
class Options:
    """Train a network: `loci train PRESET --out RUN [--section.option value ...]`, or `loci train --resume RUN`.

    In place of a preset's name, a config.json: that of a run, or one of your own with stages as you like.
    """

    out: Path | None = None
    """The run's folder, for a new run."""
    dry_run: bool = False
    """Say what would be trained and how long it would take, and stop."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


def main(words: list[str]) -> int:
    """Run the command; 130 if it was stopped by Ctrl-C."""
    if words[:1] == ["phydnet"]:  # the paper's rival, with a loop of its own
        return train_phydnet.main(words[1:])
    preset, resumed, words = _what(words)
    start, found = Config() if preset is None else _start(preset), None
    if resumed is not None:
        from loci.train.checkpoint import newest

        found = newest(resumed)
        start = found[1].config
    default = Options(model=start.model, data=start.data, loss=start.loss, train=start.train)
    options = console.parse(Options, words, "train PRESET", EXAMPLES + _presets(), default)
    if preset is None and resumed is None:
        raise UserError(f"say what to train: one of {', '.join(presets.PRESETS)}, or --resume RUN")
    config = Config(options.model, options.data, options.loss, options.train)
    if preset in presets.PRESETS and config.data.source in ("video", "images"):
        from loci.train.footage import fit

        asked = {name for word in words for name in ("height", "width", "slots") if word.startswith(f"--model.{name}")}
        config = fit(config, size=not asked & {"height", "width"}, slots="slots" not in asked)
    if options.dry_run:
        return _rehearse(config, 0 if found is None else found[1].step)
    if resumed is None and options.out is None:
        raise UserError(f"say where the run shall be kept: loci train {preset} --out RUN")
    if resumed is not None and options.out not in (None, resumed):
        raise UserError(f"--resume {resumed} goes on in its own folder: leave out --out {options.out}")
    return _train(config, resumed or options.out, found)


def _what(words: list[str]) -> tuple[str | None, Path | None, list[str]]:
    """The preset or the run to resume, and the other words."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--resume=") else [word])]
    resumed = None
    if "--resume" in words:
        at = words.index("--resume")
        if at + 1 == len(words):
            raise UserError("--resume needs the folder of a run: loci train --resume RUN")
        resumed, words = Path(words[at + 1]), [*words[:at], *words[at + 2 :]]
    values = {at + 1 for at, word in enumerate(words) if word.startswith("--") and "=" not in word}
    values -= {at + 1 for at, word in enumerate(words) if word == "--dry-run"}
    named = next((at for at, word in enumerate(words) if at not in values and _names(word)), 0)
    if not words or words[named].startswith("-"):
        return None, resumed, words
    if not _names(words[named]):
        near = difflib.get_close_matches(words[named].lower(), presets.PRESETS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UserError(f"no preset {words[named]!r}{hint} One of: {', '.join(presets.PRESETS)}; or a config.json")
    if resumed is not None:
        raise UserError(f"--resume goes on with the run's own config: leave out the preset {words[named]!r}")
    return words[named], None, words[:named] + words[named + 1 :]


def _names(word: str) -> bool:
    return word in presets.PRESETS or word.endswith(".json")


def _start(name: str) -> Config:
    """A preset, or what a file says."""
    if name in presets.PRESETS:
        return presets.PRESETS[name]()
    try:
        return from_dict(Config, json.loads(Path(name).read_text()))
    except (OSError, ValueError) as error:  # a mistake in the config is a ValueError too
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{name} cannot be read as a config: {why}") from error


def _presets() -> str:
    rows = (f"  {name:<13} {(preset.__doc__ or '').splitlines()[0]}" for name, preset in presets.PRESETS.items())
    return "\nPresets:\n" + "\n".join(rows)


def _train(config: Config, out: Path | None, found: tuple[Path, Content] | None) -> int:
    from loci.train.signals import TerminatedError, terminable

    try:
        with terminable():
            return _conduct(config, out, found)
    except TerminatedError:
        again = "begin again with the same command" if found is None else f"go on with: loci train --resume {out}"
        console.say(f"asked to end before the first update, nothing is lost; {again}")
        return 0


def _conduct(config: Config, out: Path | None, found: tuple[Path, Content] | None) -> int:
    from loci.commands.train_display import Display
    from loci.train.processes import LostError
    from loci.train.run import begin, resume

    assert out is not None
    quiet = not console.first()
    spent = 0.0 if found is None else found[1].extra["place"]["elapsed"]
    seconds = None if config.train.minutes is None else 60 * config.train.minutes - spent
    try:
        with Display(config.train.total, seconds, quiet=quiet) as display:
            outcome = begin(config, out, display) if found is None else resume(out, config, display, found)
    except LostError as error:
        console.warn(str(error))
        return 1
    if not quiet:
        _conclude(outcome)
    return {"interrupted": 130, "not finite": 1}.get(outcome.reason, 0)


def _conclude(outcome: Outcome) -> None:
    run, updates = outcome.out, outcome.updates
    told = {
        "finished": f"finished after {updates} updates",
        "time is up": f"time is up after {updates} updates; go on with: loci train --resume {run} --train.minutes MORE",
        "terminated": f"asked to end after {updates} updates, all of it saved; go on with: loci train --resume {run}",
        "interrupted": f"stopped after {updates} updates, all of it saved; go on with: loci train --resume {run}",
        "not finite": (
            f"stopped after {updates} updates: loss or gradients were not finite for too many updates in a row. "
            f"{run} has the last good checkpoint, and in not_finite.json what it takes to see the batch again"
        ),
    }
    console.say(f"{told[outcome.reason]}. The network: {run}")
    error = outcome.metrics.get("held_out/l2_object")
    if error is not None:
        console.say(f"L2_object on held-out sequences: {error:.3g}")
    sys.stdout.flush()


def _rehearse(config: Config, done: int) -> int:
    from loci.commands.train_display import duration
    from loci.train.rehearse import rehearse

    rehearsal = rehearse(config, done)
    if not console.first():
        return 0
    console.say(json.dumps(to_dict(config), indent=2))
    rows = [(name, f"{count:,}") for name, count in rehearsal.parameters.items()]
    console.table("Parameters", ("part", "numbers"), [*rows, ("all", f"{sum(rehearsal.parameters.values()):,}")])
    for stage, seconds in enumerate(rehearsal.seconds):
        console.say(f"stage {stage + 1}: {1000 * seconds:.0f} ms an update")
    left = f"{config.train.total - done:,}" + (" more" if done else "")
    console.say(f"{left} updates would take about {duration(rehearsal.total)} on {rehearsal.device}")
    return 0
