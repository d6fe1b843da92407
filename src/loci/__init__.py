"""loci finds every object in video from a still camera, without labels, and keeps track of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import loci.train  # noqa: F401  (first, so that the function below keeps its name)
from loci.checkpoint import load
from loci.config import Config, ModelConfig
from loci.model import Code, Loci, State, StepOutput

if TYPE_CHECKING:
    from loci.train.run import Outcome

__all__ = ["Code", "Config", "Loci", "ModelConfig", "State", "StepOutput", "load", "train"]


def train(config: Config, out: Path | str = "run") -> Outcome:  # type: ignore[no-redef]
    """Train a network from nothing.

    Args:
        config: What to train, on what and how; `loci.presets` has some to start from.
        out: The run's folder, which must not hold a run yet; `run` here by default.

    Returns:
        Why the run stopped, its updates, its folder (which `load` reads) and its last metrics.
    """
    from loci.train.run import begin

    return begin(config, out)
