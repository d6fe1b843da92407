"""loci finds every object in video from a still camera, without labels, and keeps track of it.

What needs torch is imported when it is first asked for: a mistake on the command line is answered at once.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loci.track
import loci.train  # noqa: F401  (first, so that the function below keeps its name)

if TYPE_CHECKING:
    from loci.checkpoint import load
    from loci.config import Config, ModelConfig
    from loci.model import Code, Loci, State, StepOutput
    from loci.train.run import Outcome

__all__ = ["Code", "Config", "Loci", "ModelConfig", "State", "StepOutput", "load", "track", "train"]

_HOMES = {
    "load": "loci.checkpoint",
    "Config": "loci.config",
    "ModelConfig": "loci.config",
    "Code": "loci.model",
    "Loci": "loci.model",
    "State": "loci.model",
    "StepOutput": "loci.model",
}


def __getattr__(name: str) -> Any:
    """Fetch what is public from where it lives."""
    if name not in _HOMES:
        raise AttributeError(f"module 'loci' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


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
