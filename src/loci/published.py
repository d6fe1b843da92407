"""Checkpoints of the published code: their names and shapes, to and from ours, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from loci.config import ModelConfig
from loci.errors import UserError
from loci.model import Loci
from loci.model.gatelord import GateL0RD
from loci.track.atomic import atomic

UNUSED = "background.local_bias"
"""A parameter of theirs that nothing reads; kept beside our weights, so that export gives back what came."""
CONSTANT = "initial_states.threshold"
"""In their state dict, but not a parameter."""


class Place(NamedTuple):
    """Where a published tensor lives in ours."""

    name: str
    part: int | None = None
    """Which of the paired weights."""
    columns: slice = slice(None)
    """Which of its columns."""


def layout(model: Loci) -> dict[str, Place]:
    """Every published name and its place in our network."""
    return dict(_layout(model.config))


def _layout(config: ModelConfig) -> Iterator[tuple[str, Place]]:
    def block(theirs: str, ours: str, first: int = 1, scaled: bool = False) -> Iterator[tuple[str, Place]]:
        if scaled:
            yield f"{theirs}.alpha", Place(f"{ours}.alpha")
        for theirs_index, part in ((first, "first"), (first + 2, "second")):
            for kind in ("weight", "bias"):
                yield f"{theirs}.layers.{theirs_index}.{kind}", Place(f"{ours}.{part}.{kind}")

    layers = config.encoder.layers
    yield from block("encoder.layers2.0", "encoder.fine_down", 0, True)
    for i in range(layers):
        yield from block(f"encoder.layers2.{i + 1}", f"encoder.fine_blocks.{i}", scaled=True)
        yield from block(f"encoder.layers0.{i}", f"encoder.blocks.{i}")
    yield from block("encoder.layers1.0", "encoder.down", 0, True)
    for i in range(layers + 1):
        yield from block(f"encoder.position_encoder.{i}", f"encoder.position_head.{i}")
        yield from block(f"encoder.gestalt_encoder.{i + 1}", f"encoder.gestalt_head.{i + 1}")
    yield from block("encoder.gestalt_encoder.0", "encoder.gestalt_head.0", 0, True)
    yield "encoder.std_encoder.alpha.init", Place("encoder.size_growth")

    yield from _transition_layout(config)

    for i in range(config.decoder.layers):
        yield from block(f"decoder.layer0.{i}", f"decoder.trunk.{i}", 0 if i == 0 else 1)
    for theirs, ours in (("mask", "mask"), ("object", "colour")):
        yield f"decoder.{theirs}_alpha", Place(f"decoder.{ours}.fine_scale")
        yield from block(f"decoder.to_{theirs}_level0", f"decoder.{ours}.head")
        yield from block(f"decoder.to_{theirs}_level1", f"decoder.{ours}.coarse", scaled=True)
        for i in range(4):
            yield from block(f"decoder.to_{theirs}_level2.{i}", f"decoder.{ours}.fine.{i}", scaled=i > 1)

    yield "background.mask", Place("compose.background_logit")
    yield "background.alpha", Place("compose.background_growth")
    yield "initial_states.gestalt_mean", Place("seed.gestalt_mean")
    yield "initial_states.gestalt_std", Place("seed.gestalt_std")
    yield "initial_states.std", Place("seed.sigma")
    yield CONSTANT, Place("seed.threshold")


def _transition_layout(config: ModelConfig) -> Iterator[tuple[str, Place]]:
    layers, width = config.transition.layers, config.transition.heads * config.code
    yield "predictor.std_alpha", Place("transition.sigma_scale")
    for position, ours in ((0, "enter"), (2 * layers + 1, "leave")):
        yield f"predictor.predictor.layers.{position}.alpha", Place(f"transition.{ours}.alpha")
        for index, half in ((1, "first"), (3, "second")):
            for kind in ("weight", "bias"):
                name = f"predictor.predictor.layers.{position}.embeding.{index}.{kind}"
                yield name, Place(f"transition.{ours}.{half}.{kind}")
    for i in range(layers):
        theirs, ours = f"predictor.predictor.layers.{2 * i + 1}", f"transition.attention.{i}"
        yield f"{theirs}.alpha", Place(f"{ours}.alpha")
        for kind in ("weight", "bias"):
            yield f"{theirs}.attention.in_proj_{kind}", Place(f"{ours}.project_in.{kind}")
            yield f"{theirs}.attention.out_proj.{kind}", Place(f"{ours}.project_out.{kind}")
        theirs, ours = f"predictor.predictor.layers.{2 * i + 2}", f"transition.recurrence.{i}"
        yield f"{theirs}.alpha", Place(f"{ours}.alpha")
        for letter, kind, part in (("g", "state", 0), ("r", "state", 1), ("p", "output", 0), ("o", "output", 1)):
            yield f"{theirs}.l0rd.w_{letter}x", Place(f"{ours}.cell.{kind}_weight", part, slice(0, width))
            yield f"{theirs}.l0rd.w_{letter}h", Place(f"{ours}.cell.{kind}_weight", part, slice(width, None))
            yield f"{theirs}.l0rd.b_{letter}", Place(f"{ours}.cell.{kind}_bias", part)
    for i in range(3 if config.snitch else 0):
        for index, half in ((1, "first"), (3, "second")):
            for kind in ("weight", "bias"):
                name = f"predictor.tracker.gate.{i}.layers.{index}.{kind}"
                yield name, Place(f"transition.snitch.layers.{i}.{half}.{kind}")
    for index, half in ((1, "first"), (3, "second")):
        for kind in ("weight", "bias"):
            yield f"predictor.bottleneck.1.layers.{index}.{kind}", Place(f"transition.bottleneck.{half}.{kind}")
    yield "predictor.priority_encoder.index_factor", Place("transition.index_scale")
    yield "predictor.priority_encoder.priority_factor", Place("transition.priority_scale")


def _view(tensors: Mapping[str, Tensor], place: Place) -> Tensor:
    tensor = tensors[place.name]
    tensor = tensor if place.part is None else tensor[place.part]
    return tensor if place.columns == slice(None) else tensor[:, place.columns]


def _published_shape(name: str, tensor: Tensor) -> tuple[int, ...]:
    """Theirs carry axes of one here and there."""
    if name == "background.mask":
        return (1, 1, *tensor.shape)
    if name.startswith("initial_states.gestalt"):
        return (1, *tensor.shape)
    return tuple(tensor.shape)


def export_published(model: Loci, extra: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The published code's state dict; `extra` has what `import_published` kept beside the weights."""
    if any(not isinstance(layer.cell, GateL0RD) for layer in model.transition.recurrence):
        raise UserError("the published code has no LSTM: only networks with transition.cell gatelord can be exported")
    ours = model.state_dict()
    theirs = {}
    for name, place in layout(model).items():
        tensor = _view(ours, place)
        theirs[name] = tensor.reshape(_published_shape(name, tensor)).detach().clone()
    bias = (extra or {}).get(UNUSED)
    theirs[UNUSED] = torch.zeros(1, 3, model.config.height, model.config.width) if bias is None else bias.clone()
    return theirs


def modern_name(name: str) -> str:
    """What an older checkpoint's name became."""
    return re.sub(r"\bpredictor\.vae\b", "predictor.bottleneck", name.replace(".module.", "."))


def import_published(model: Loci, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a published state dict into the model; return what has no place in it, for `export_published`."""
    given: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if given.setdefault(modern_name(name), tensor) is not tensor:
            raise UserError(
                f"this checkpoint has two tensors for {modern_name(name)}: by its old name and by its new one"
            )
    wanted = layout(model)
    ours = model.state_dict()
    shapes = {name: _published_shape(name, _view(ours, place)) for name, place in wanted.items()}
    shapes[UNUSED] = (1, 3, model.config.height, model.config.width)
    problems = [f"missing {name}" for name in shapes if name not in given]
    problems += [f"left over {name}" for name in given if name not in shapes]
    problems += [
        f"{name} has shape {tuple(given[name].shape)}, expected {shape}"
        for name, shape in shapes.items()
        if name in given and tuple(given[name].shape) != shape
    ]
    if problems:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise UserError(
            f"this checkpoint does not fit the network: {'; '.join(problems[:8])}{more}. "
            "Choose the preset it was trained with (--preset), or set its sizes (--model.gestalt, --model.slots, ...)."
        )
    with torch.no_grad():
        for name, place in wanted.items():
            target = _view(ours, place)
            target.copy_(given[name].reshape(target.shape))
    return {UNUSED: given[UNUSED].clone()}


def read_published(path: Path) -> dict[str, Tensor]:
    """The state dict in a checkpoint of the published code; only tensors are read, no code is run."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"no such file: {path}") from error
    except Exception as error:  # a file from elsewhere may fail in any way; it is always the file's fault
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is not a torch file that can be read safely: {reason}") from error
    tensors = content.get("model") if isinstance(content, dict) else None
    if not isinstance(tensors, Mapping) or not all(isinstance(t, Tensor) for t in tensors.values()):
        keys = ", ".join(map(str, list(content)[:6])) if isinstance(content, dict) else type(content).__name__
        raise UserError(f"{path} has no key 'model' with tensors (it has: {keys}); is it a published checkpoint?")
    return {str(name): tensor for name, tensor in tensors.items()}


def write_published(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a state dict as the published code expects it, whole or not at all."""
    try:
        with atomic(path) as part, part.open("wb") as file:
            torch.save({"model": dict(tensors)}, file)
    except (OSError, RuntimeError) as error:  # torch says the second when the disk is full
        raise UserError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def count_published(model: Loci) -> int:
    """The number of parameters as the published code counts them."""
    return sum(tensor.numel() for name, tensor in export_published(model).items() if name != CONSTANT)
