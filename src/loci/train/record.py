"""What a run leaves for people: metrics.jsonl, TensorBoard, pictures."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import cv2
from torch import Tensor

from loci.errors import UserError

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"


class Record:
    """Writes into a run's folder; lines that a resumed run will write again are taken out first."""

    def __init__(self, run: Path, update: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.run = run
        self.metrics = run / METRICS
        if self.metrics.exists():
            lines = self.metrics.read_text().splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= update]
            if len(kept) < len(lines):
                self.metrics.write_text("".join(kept))
        self.board = SummaryWriter(str(run / "tensorboard"), purge_step=update + 1 if update else None)

    def write(self, update: int, values: Mapping[str, float], kind: str) -> None:
        """A line of metrics; `kind` is train or held_out."""
        line = {"step": update, "kind": kind, **{name: _short(value) for name, value in values.items()}}
        try:
            with self.metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
            for name, value in values.items():
                self.board.add_scalar(f"{kind}/{name}", value, update)
            self.board.flush()
        except OSError as error:
            raise UserError(f"cannot write to {self.metrics}: {error.strerror}") from error

    def picture(self, update: int, image: Tensor) -> None:
        """A picture [3,H,W] uint8."""
        path = self.run / "pictures" / f"{update:09d}.png"
        path.parent.mkdir(exist_ok=True)
        if not cv2.imwrite(str(path), image.permute(1, 2, 0).flip(2).contiguous().numpy()):
            log.warning("could not write %s", path)
        self.board.add_image("held_out", image, update)

    def close(self) -> None:
        """All that was written is on its way to the disk."""
        self.board.close()


def _short(value: float) -> float:
    return float(f"{value:.6g}")
