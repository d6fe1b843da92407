"""Networks on disk: one safetensors file that rebuilds itself from what is inside it.

The metadata hold the version of this format, the config, the step and a digest of everything in the file, so that a
file that was cut off or in which a byte has changed is refused, wherever the damage is. A tensor whose name has no
slash is a weight; a training checkpoint has others beside them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from loci.config import Config, ModelConfig, from_dict, to_dict
from loci.errors import UserError
from loci.model import Loci

FORMAT = "loci 1"
BEST = "best.safetensors"
FOLDER = "checkpoints"
WEIGHTS = Path(__file__).parent / "weights"


class DamagedError(UserError):
    """A file that is not what was written."""


@dataclass(frozen=True)
class Content:
    """What a file holds."""

    config: Config
    step: int
    extra: dict[str, Any]
    """JSON values that were saved beside the weights."""
    tensors: dict[str, Tensor]


def save(
    path: Path | str, model: Loci, *, step: int = 0, extra: Mapping[str, Any] | None = None, run: Config | None = None
) -> None:
    """Write a network that `load` reads.

    Args:
        path: The file, which is whole afterwards or as it was before.
        model: The network.
        step: How many updates it has had.
        extra: JSON values to keep beside it.
        run: How it was trained.
    """
    config = replace(run, model=model.config) if run else Config(model=model.config)
    write(Path(path), Content(config, step, dict(extra or {}), dict(model.state_dict())))


def load(path: Path | str, device: torch.device | str = "cpu") -> Loci:
    """A network to use, in evaluation mode.

    Args:
        path: A file; a run's folder, whose best network is taken, or the newest if none is the best yet; or the name
            of a network that ships with the package.
        device: Where to put it.
    """
    file = find(path)
    content = read(file, weights_only=True)
    return build(content, file).to(device).eval()


def build(content: Content, file: Path) -> Loci:
    """The network of a file's content, which must fit to the last tensor."""
    weights = {name: tensor for name, tensor in content.tensors.items() if "/" not in name}
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    with torch.random.fork_rng(devices=[]):
        model = Loci(content.config.model)
    compare({name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, shapes, file)
    model.load_state_dict(weights)
    return model


def find(path: Path | str) -> Path:
    """The file that `load` means."""
    place = Path(path)
    if place.is_file():
        return place
    if place.is_dir():
        if (place / BEST).is_file():
            return place / BEST
        numbered = checkpoints(place)
        if numbered:
            return numbered[0]
        raise UserError(f"{str(path)!r} is a folder without {BEST} or {FOLDER}/: expected a run's folder or a file")
    shipped = {file.stem: file for file in sorted(WEIGHTS.glob("*.safetensors"))}
    if str(path) in shipped:
        return shipped[str(path)]
    names = ", ".join(shipped) or "none yet"
    raise UserError(f"no file, folder or shipped network {str(path)!r}; networks that ship: {names}")


def checkpoints(run: Path) -> list[Path]:
    """A run's training checkpoints, the newest first."""
    found = [(re.fullmatch(r"(\d+)\.safetensors", file.name), file) for file in (run / FOLDER).glob("*.safetensors")]
    return [file for match, file in sorted(((m, f) for m, f in found if m), key=lambda x: -int(x[0][1]))]


def write(path: Path, content: Content) -> None:
    """Write a file that `read` reads: to a temporary name, to the disk, and only then to its own name."""
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in content.tensors.items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(f"not saved to {path}: {name} has values that are not finite")
    metadata = {
        "format": FORMAT,
        "config": json.dumps(to_dict(content.config)),
        "step": str(content.step),
        "extra": json.dumps(content.extra),
    }
    metadata["digest"] = digest(tensors, metadata)
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, part, metadata)
        part.chmod(0o644)  # safetensors makes it readable by its owner alone
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {path}: {_why(error)}; what was saved before is as it was") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _why(error: Exception) -> str:
    """What the system said; safetensors puts the number into its text."""
    number = getattr(error, "errno", None)
    if number is None:
        match = re.search(r"os error (\d+)", str(error))
        number = int(match[1]) if match else None
    reasons = {errno.ENOSPC: "the disk is full", errno.EFBIG: "the file is larger than the limit on files here"}
    return reasons.get(number, os.strerror(number)) if number else str(error)


def read(path: Path, *, weights_only: bool = False) -> Content:
    """Everything in a file, copied into memory; a `DamagedError` error if it is not what was written."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            version = metadata.get("format")
            if version is None:
                raise DamagedError(f"{path} says no format: it is not a file of loci, or its header is damaged")
            if version != FORMAT:
                raise UserError(f"{path} has format {version!r}; this version of loci reads {FORMAT!r}")
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
            config, step, extra = _parse(path, metadata)
            marks = landmarks(config.model)  # before anything of the config's sizes gets memory
            compare(marks, {name: shape for name, shape in shapes.items() if name in marks}, path)
            tensors = {name: file.get_tensor(name) for name in names}
            if digest(tensors, metadata) != metadata.get("digest"):
                raise DamagedError(f"{path} is damaged: its content does not match its digest")
            wanted = (name for name in names if not (weights_only and "/" in name))
            return Content(config, step, extra, {name: tensors[name].clone() for name in wanted})
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged or cut off: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _parse(path: Path, metadata: Mapping[str, str]) -> tuple[Config, int, dict[str, Any]]:
    try:
        values = json.loads(metadata["config"])
        step, extra = int(metadata["step"]), json.loads(metadata["extra"])
    except (KeyError, ValueError) as error:
        raise DamagedError(f"{path} is damaged: its metadata cannot be read ({error!r})") from error
    try:
        return from_dict(Config, values), step, extra
    except UserError as error:
        raise DamagedError(f"{path} has a config that makes no sense: {error}") from error


def digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Of names, types, shapes and bytes of all tensors, and of the metadata but the digest itself."""
    told = hashlib.blake2b(digest_size=16)
    kept = {name: value for name, value in metadata.items() if name != "digest"}
    told.update(json.dumps(kept, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        told.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        told.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return told.hexdigest()


def landmarks(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Some tensors that between them show every size of the network."""
    encoder, transition, decoder = config.encoder, config.transition, config.decoder
    width = transition.heads * config.code
    marks = {
        "compose.background_logit": (config.height, config.width),
        "seed.gestalt_mean": (config.gestalt,),
        "encoder.down.first.weight": (encoder.channels, encoder.fine_channels, 11, 11),
        f"transition.attention.{transition.layers - 1}.project_out.weight": (width, width),
        f"decoder.trunk.{decoder.layers - 1}.second.weight": (decoder.channels, decoder.channels, 3, 3),
    }
    if encoder.layers:
        marks[f"encoder.blocks.{encoder.layers - 1}.second.weight"] = (encoder.channels, encoder.channels, 3, 3)
    return marks


def compare(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Refuse shapes that are not those of the config."""
    problems = [f"{name} is missing" for name in wanted if name not in given]
    problems += [f"{name} is left over" for name in given if name not in wanted]
    problems += [f"{n} is {given[n]}, expected {s}" for n, s in wanted.items() if n in given and given[n] != s]
    if problems:
        more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise DamagedError(f"{path}: its tensors do not fit its config: {'; '.join(problems[:4])}{more}")
