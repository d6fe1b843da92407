"""Begin a run, or go on with one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from loci.checkpoint import Content, checkpoints
from loci.config import Config, to_dict
from loci.errors import UserError
from loci.train.checkpoint import newest
from loci.train.loop import Trainer
from loci.train.processes import Processes, together
from loci.train.record import METRICS, Record, Tell
from loci.train.signals import Reason, Signals

log = logging.getLogger(__name__)

FREE = {
    "train.updates",
    "train.minutes",
    "train.device",
    "train.fast",
    "train.patience",
    "train.log_every",
    "train.picture_every",
    "train.evaluate_every",
    "train.evaluate_clips",
    "train.save_every",
    "train.keep",
}
"""What a resumed run may change without becoming another run."""


class Outcome(NamedTuple):
    """What a run came to."""

    reason: Reason
    """Why it stopped."""
    updates: int
    """Done in all."""
    out: Path
    """Its folder, which `loci.load` reads."""
    metrics: dict[str, float]
    """The last ones, of training and of held-out sequences (held_out/...)."""


def silent(update: int, metrics: Mapping[str, float] | None) -> None:
    """Tell nobody."""


def begin(config: Config, out: Path | str, tell: Tell = silent) -> Outcome:
    """Train a network from nothing.

    Args:
        config: What to train, on what and how.
        out: The run's folder, which must not hold a run yet.
        tell: Is told of every update.
    """
    folder = Path(out)
    if (folder / METRICS).exists() or checkpoints(folder):
        raise UserError(f"{str(out)!r} already holds a run: go on with `loci train --resume {out}`, or choose another")

    def work(processes: Processes) -> Outcome:
        if processes.first:
            _write_config(folder, config)
        trainer = Trainer(config, processes, folder)
        return _conduct(trainer, folder, tell)

    return together(config.train.device, work)


def resume(
    out: Path | str, config: Config | None = None, tell: Tell = silent, found: tuple[Path, Content] | None = None
) -> Outcome:
    """Go on with a run as if nothing had happened.

    Args:
        out: Its folder.
        config: In place of its own; only its length and what it says about itself may differ.
        tell: Is told of every update.
        found: What `newest` gives, if that has been read already.
    """
    folder = Path(out)
    path, content = found or newest(folder)
    chosen = content.config if config is None else config
    check_change(content.config, chosen, content.step)
    log.info("going on from %s, after %d updates", path, content.step)

    def work(processes: Processes) -> Outcome:
        trainer = Trainer(chosen, processes, folder)
        trainer.restore(content)
        if processes.first:
            _write_config(folder, chosen)
        if trainer.place.update >= trainer.schedule.total:
            trainer.close()
            return Outcome("finished", trainer.place.update, folder, {})
        return _conduct(trainer, folder, tell)

    return together(chosen.train.device, work)


def _conduct(trainer: Trainer, folder: Path, tell: Tell) -> Outcome:
    record = Record(folder, trainer.place.update) if trainer.processes.first else None
    try:
        with Signals(trainer.processes.world) as signals:
            reason = trainer.run(folder, record, signals, tell)
    finally:
        trainer.close()
        if record is not None:
            record.close()
    return Outcome(reason, trainer.place.update, folder, trainer.metrics)


def _write_config(folder: Path, config: Config) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(to_dict(config), indent=2) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error


def check_change(old: Config, new: Config, done: int) -> None:
    """Refuse a config that would make another run of the one that is resumed; it may become longer."""
    problems = []
    for path, before, after in differences(to_dict(old), to_dict(new)):
        if path in FREE or (path == f"train.stages.{len(old.train.stages) - 1}.updates" and after > before):
            continue
        problems.append(f"{path}: {before!r} in the run, {after!r} now")
    if problems:
        raise UserError(
            f"this would be another run than the one to resume: {'; '.join(problems)}. "
            "Leave these as they were, or start a new run with --out."
        )
    if new.train.total < done:
        raise UserError(f"the run has had {done} updates already, and should end after {new.train.total}")


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two trees of plain values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() | new.keys():
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}.{index}")
    elif old != new:
        yield path, old, new
