"""What a run leaves for people: metrics.jsonl, TensorBoard, pictures."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import cv2
from torch import Tensor

from loci.errors import UserError
from loci.track.atomic import atomic

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"


class Tell(Protocol):
    """Is told of every update."""

    def __call__(self, update: int, metrics: Mapping[str, float] | None) -> None:
        """So many updates are done; every so often with metrics."""
        ...


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """What goes wrong with the disk is the disk's fault, and says so."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"cannot write to {place}: {why}; what was saved before is as it was") from error


class Record:
    """Writes into a run's folder; lines that a resumed run will write again are taken out first."""

    def __init__(self, run: Path, update: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.run = run
        self.metrics = run / METRICS
        with _writing(run):
            self._forget_after(update)
            self.board = SummaryWriter(str(run / "tensorboard"), purge_step=update + 1 if update else None)

    def _forget_after(self, update: int) -> None:
        """Keep the whole lines up to this update; a killed process may have left a torn one."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text(errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if (step := _step(line)) is not None and step <= update]
        if len(kept) < len(lines):
            with atomic(self.metrics) as part:
                part.write_text("".join(kept))

    def write(self, update: int, values: Mapping[str, float], kind: str) -> None:
        """A line of metrics; `kind` is train or held_out."""
        line = {"step": update, "kind": kind, **{name: _short(value) for name, value in values.items()}}
        with _writing(self.run):
            with self.metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
            for name, value in values.items():
                self.board.add_scalar(f"{kind}/{name}", value, update)
            self.board.flush()

    def picture(self, update: int, image: Tensor) -> None:
        """A picture [3,H,W] uint8."""
        path = self.run / "pictures" / f"{update:09d}.png"
        with _writing(self.run):
            path.parent.mkdir(exist_ok=True)
            if not cv2.imwrite(str(path), image.permute(1, 2, 0).flip(2).contiguous().numpy()):
                log.warning("could not write %s", path)
            self.board.add_image("held_out", image, update)

    def offender(self, facts: Mapping[str, Any]) -> None:
        """Which batch it was that made a run stop."""
        with _writing(self.run):
            (self.run / "not_finite.json").write_text(json.dumps(facts, indent=2) + "\n")

    def close(self) -> None:
        """All that was written is on its way to the disk; an error here must not hide the one that ended the run."""
        try:
            self.board.close()
        except OSError as error:
            log.warning("could not finish the curves in %s: %s", self.run / "tensorboard", error.strerror or error)


def _step(line: str) -> int | None:
    """The update of a line of metrics; None if the line is not whole."""
    try:
        return int(json.loads(line)["step"]) if line.endswith("\n") else None
    except (ValueError, KeyError, TypeError):
        return None


def _short(value: float) -> float:
    return float(f"{value:.6g}")
