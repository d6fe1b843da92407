"""Training checkpoints: everything that the next update depends on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loci.checkpoint import FOLDER, Content, checkpoints, read, write
from loci.config import Config
from loci.errors import UserError
from loci.model import Loci, State
from loci.model.gatelord import CellState, Traces
from loci.train.optimise import Optimisers

log = logging.getLogger(__name__)


@dataclass
class Place:
    """Where a run is. All that is random follows from this and the seed."""

    update: int = 0
    """Updates done."""
    sequence: int = 0
    """The sequence being watched, which says which clips it shows."""
    cursor: int = 0
    """Updates done in this sequence."""
    stage: int = 0
    """Which it belongs to."""
    elapsed: float = 0.0
    """Seconds spent training."""
    best: float | None = None
    """The best evaluation yet."""
    counts: dict[str, int] = field(default_factory=dict)
    """Updates of each group of parameters."""


def save_training(
    run: Path,
    config: Config,
    model: Loci,
    optimisers: Optimisers,
    state: State | None,
    place: Place,
    meters: Mapping[str, Tensor],
) -> Path:
    """Write a checkpoint that `newest` and `loci.load` read; return its path."""
    tensors = dict(model.state_dict())
    tensors |= {f"optimiser/{name}": tensor for name, tensor in optimisers.tensors().items()}
    tensors |= {f"meter/{name}": tensor for name, tensor in meters.items()}
    if state is not None:
        tensors |= flatten(state, "state")
    extra = {
        "place": asdict(replace(place, counts=optimisers.counts)),
        "resolution": config.model.resolution,
        "fresh": None if state is None else state.fresh,
    }
    path = run / FOLDER / f"{place.update:09d}.safetensors"
    shown = replace(config, model=replace(config.model, resolution=model.config.resolution))
    write(path, Content(shown, place.update, extra, tensors))
    return path


def tidy(run: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what a killed process left half-written."""
    for old in checkpoints(run)[keep:]:
        old.unlink(missing_ok=True)
    for part in [*run.glob(".part-*"), *(run / FOLDER).glob(".part-*")]:
        part.unlink(missing_ok=True)


def newest(run: Path) -> tuple[Path, Content]:
    """The newest whole checkpoint of a run, with the config of the run; damaged ones are named and passed over."""
    found = checkpoints(run)
    if not found:
        raise UserError(
            f"{str(run)!r} has no checkpoints: expected the folder of a run that has saved one; "
            "a run that was stopped before its first update begins again with the command that began it"
        )
    for path in found:
        try:
            content = read(path)
            nominal = replace(content.config.model, resolution=content.extra["resolution"])
            Place(**content.extra["place"])
        except (UserError, KeyError, TypeError) as error:
            log.warning("passing over a checkpoint: %s", error)
            continue
        return path, replace(content, config=replace(content.config, model=nominal))
    raise UserError(f"all {len(found)} checkpoints in {run / FOLDER} are damaged; {run} cannot be resumed")


def group(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


def flatten(tree: Any, path: str) -> dict[str, Tensor]:
    """The tensors of a state by name."""
    if isinstance(tree, Tensor):
        return {path: tree}
    if isinstance(tree, tuple):
        names = getattr(tree, "_fields", range(len(tree)))
        return {k: v for n, item in zip(names, tree, strict=True) for k, v in flatten(item, f"{path}/{n}").items()}
    return {}


def restore_state(template: State, tensors: Mapping[str, Tensor], entries: range, fresh: bool) -> State:
    """A state from its tensors, these entries of the batch; the template has everything but traces."""

    def fill(tree: Any, path: str) -> Any:
        if isinstance(tree, Tensor):
            part = tensors[path][entries.start : entries.stop]
            return torch.empty(part.shape, dtype=tree.dtype, device=tree.device).copy_(part)
        if isinstance(tree, CellState) and f"{path}/traces/weight" in tensors:
            traces = Traces(tree.hidden.new_empty(()), tree.hidden.new_empty(()))
            return CellState(*(fill(x, f"{path}/{n}") for n, x in zip(tree._fields, (*tree[:2], traces), strict=True)))
        if isinstance(tree, tuple):
            names = getattr(tree, "_fields", range(len(tree)))
            items = [fill(item, f"{path}/{n}") for n, item in zip(names, tree, strict=True)]
            return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
        return tree

    state: State = fill(template, "state")
    return state._replace(fresh=fresh)
