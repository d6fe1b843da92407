"""PhyDNet's own loop: whole sequences, back-propagation through time, teacher forcing that fades.

Ten frames are seen, ten are predicted; early on the truth is fed back, later more and more often the prediction itself.
The run's folder holds one file, from which the same command goes on exactly where it stopped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from loci import random
from loci.data.source import Source
from loci.errors import UserError
from loci.evaluate.phydnet import PhyDNet, PhyDNetConfig, PhyState, image_loss
from loci.model.frames import as_frame
from loci.track.atomic import atomic

FORMAT = "phydnet 1"
FILE = "phydnet.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_TELL_EVERY = 10  # updates; asking a GPU for the loss stops it

Told = Callable[[int, float], object]


@dataclass(frozen=True)
class Recipe:
    """How PhyDNet learns; the defaults are the published ones but for the rate, which falls along a cosine."""

    updates: int = 200_000
    """Sequences of one batch each."""
    batch: int = 16
    """Sequences in an update."""
    rate: float = 1e-3
    """Adam's; it ends at zero."""
    given: int = 10
    """Frames seen."""
    steps: int = 10
    """Frames predicted."""
    taught: float = 0.5
    """The share of the run over which teacher forcing fades from always to never."""
    clip: float = 1.0
    """Longest gradient."""
    seed: int = 0
    """Of the weights, the sequences and the teacher's choices."""

    def __post_init__(self) -> None:
        if min(self.updates, self.batch, self.given, self.steps) < 1:
            raise UserError("updates, batch, given and steps must be 1 or more")
        if not 0 < self.taught <= 1:
            raise UserError(f"taught is {self.taught}; a share of the run between 0 and 1")


def sequence_loss(model: PhyDNet, frames: Tensor, given: int, taught: list[bool]) -> Tensor:
    """Squared error of every predicted frame, and of the kernels' moments; frames [B,T,3,H,W] in [0,1].

    Args:
        model: PhyDNet.
        frames: those given, and those to predict.
        given: how many are seen for sure.
        taught: for each frame after those, but the last, whether the truth is seen rather than the prediction.
    """
    state: PhyState = model.start(frames.shape[0])
    losses = []
    for t in range(frames.shape[1] - 1):
        sees_truth = t < given or taught[t - given]
        state, output = model.flow(frames[:, t] if sees_truth else state.frame, state)
        losses.append(image_loss(output.frame, frames[:, t + 1]))
    return torch.stack(losses).sum() + model.physics.moment_loss()


def lessons(recipe: Recipe, update: int) -> list[bool]:
    """The teacher's choices in an update."""
    share = max(0.0, 1 - update / (recipe.taught * recipe.updates))
    draws = random.uniform(random.key(recipe.seed, "teacher forcing", update), (recipe.steps,))
    return [bool(draw < share) for draw in draws]


def new_model(config: PhyDNetConfig, seed: int) -> PhyDNet:
    """Weights that follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PhyDNet(config)


def train(
    out: Path,
    source: Source,
    recipe: Recipe,
    config: PhyDNetConfig | None = None,
    *,
    device: torch.device | str = "cpu",
    save_every: int = 1000,
    told: Told = lambda _steps, _loss: None,
) -> PhyDNet:
    """Learn, or go on learning; the source's clips must be long enough for what is given and what is predicted.

    Args:
        out: The run's folder.
        source: Where sequences come from; update n takes the n-th batch of them.
        recipe: How.
        config: Sizes; None fits them to the source.
        device: Where.
        save_every: Updates between two savings.
        told: Called every so often with how many updates have been done since, and the loss.
    """
    length = recipe.given + recipe.steps
    if source.length < length:
        raise UserError(f"clips have {source.length} frames; {length} are needed: ask for a longer --length")
    config = config or PhyDNetConfig(*source.size)
    model = new_model(config, recipe.seed).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    path = out / FILE
    done = resume(path, model, optimiser, recipe) if path.exists() else 0
    told(done, math.nan)
    known = done
    for update in range(done, recipe.updates):
        first = update * recipe.batch
        indices = [n % len(source) for n in range(first, first + recipe.batch)]
        clip = source.clips(indices, labels=False, device=device)
        frames = as_frame(clip.frames[:, :length].flatten(0, 1), torch.float32, torch.device(device))
        loss = sequence_loss(model, frames.unflatten(0, (-1, length)), recipe.given, lessons(recipe, update))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * (1 + math.cos(math.pi * update / recipe.updates)) / 2
        optimiser.step()
        last = update + 1 == recipe.updates
        if (update + 1) % _TELL_EVERY == 0 or last:
            told(update + 1 - known, float(loss.detach()))
            known = update + 1
        if (update + 1) % save_every == 0 or last:
            save(path, model, optimiser, recipe, update + 1)
    return model.eval()


def save(path: Path, model: PhyDNet, optimiser: torch.optim.Optimizer, recipe: Recipe, updates: int) -> None:
    """Weights, the optimiser's moments, and what they are of, in one file."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for moment in _MOMENTS:
            if parameter in optimiser.state:
                tensors[f"adam.{name}/{moment}"] = optimiser.state[parameter][moment].clone()
    about = {
        "format": FORMAT,
        "config": json.dumps(model.config.as_dict()),
        "recipe": json.dumps(asdict(recipe)),
        "step": str(updates),
    }
    with atomic(path) as part:
        save_file({name: value.contiguous() for name, value in tensors.items()}, part, metadata=about)


def resume(path: Path, model: PhyDNet, optimiser: torch.optim.Optimizer, recipe: Recipe) -> int:
    """Put a saved run into model and optimiser; return how many updates it has had."""
    about, tensors = _read(path)
    if json.loads(about["recipe"]) != asdict(recipe) or json.loads(about["config"]) != model.config.as_dict():
        raise UserError(
            f"{path} is of a run with other settings ({about['recipe']}): go on with those, or choose another --out"
        )
    model.load_state_dict(_part(tensors, "model."))
    moments = _part(tensors, "adam.")
    for name, parameter in model.named_parameters():
        found = {moment: moments[f"{name}/{moment}"] for moment in _MOMENTS}
        optimiser.state[parameter] = {
            moment: value if moment == "step" else value.to(parameter.device) for moment, value in found.items()
        }
    return int(about["step"])


def load(path: Path) -> PhyDNet:
    """A trained PhyDNet, ready to predict; from its file or its run's folder."""
    path = path / FILE if path.is_dir() else path
    about, tensors = _read(path)
    config = json.loads(about["config"])
    model = PhyDNet(PhyDNetConfig(**{**config, "memory": tuple(config["memory"])}))
    model.load_state_dict(_part(tensors, "model."))
    return model.eval()


def is_phydnet(path: Path) -> bool:
    """Whether a file, or a run's folder, holds a PhyDNet."""
    path = path / FILE if path.is_dir() else path
    if not path.is_file() or path.suffix != ".safetensors":
        return False
    with safe_open(path, framework="pt") as file:
        return (file.metadata() or {}).get("format") == FORMAT


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(path, framework="pt") as file:
        about = file.metadata() or {}
        if about.get("format") != FORMAT:
            raise UserError(f"{path} is no PhyDNet of ours (format {about.get('format')!r}, expected {FORMAT!r})")
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
