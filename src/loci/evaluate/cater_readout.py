"""CATER without supervision (Table 1): a small read-out learns which slot is the snitch, once the network is done.

The network, trained without any label, watches every clip once; its slots' codes are kept in a file. From them, and
from nothing else, a read-out of about 17 000 parameters learns to say where the snitch is: a correction of every slot's
place, and a gate that weighs the slots (as in Eq. Ls). No gradient reaches the network, and at test time the read-out
sees codes alone: neither the snitch's state nor anything else of the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from loci import random
from loci.data.cater_geometry import project
from loci.data.source import Source
from loci.errors import UserError
from loci.evaluate.cater import snitch_truth
from loci.evaluate.watch import Advance, clips_in_batches, quickened, silent, watch
from loci.model import Code, Loci, StepOutput
from loci.model.state import tree_map
from loci.track.atomic import atomic

STEPS = 6000
"""Of the read-out's training."""
_PRIORITY = 25.0  # priorities are handed on scaled by this


@dataclass(frozen=True)
class Latents:
    """What the slots said of some frames of every clip, and where the snitch was. n clips, M moments, K slots.

    Attributes:
        position: [n,M,K,3].
        gestalt: [n,M,K,D], float16.
        priority: [n,M,K].
        target: [n,M,2], the snitch's place on screen as CATER's camera has it; for training and scoring alone.
    """

    position: Tensor
    gestalt: Tensor
    priority: Tensor
    target: Tensor

    def samples(self) -> Latents:
        """Every moment by itself: [n·M,1,...]."""
        return Latents(*(value.flatten(0, 1)[:, None] for value in vars(self).values()))

    def code(self, index: Tensor) -> Code:
        """The slots' codes of some samples, [m,K,...]."""
        return Code(self.position[index, 0], self.gestalt[index, 0].float(), self.priority[index, 0])


class Readout(nn.Module):
    """From slots' codes to one place, (row, column)."""

    def __init__(self, gestalt: int, hidden: int = 54) -> None:
        super().__init__()
        self.gestalt, self.hidden = gestalt, hidden
        self.correction = _mlp(gestalt + 4, hidden, 2)
        self.gate = _mlp(gestalt + 4, hidden, 1)

    def forward(self, code: Code) -> Tensor:
        """[m,K,...] -> [m,2]."""
        slots = code.priority.shape[-1]
        order = code.priority / (_PRIORITY * slots)
        x = torch.cat((code.position, code.gestalt, order[..., None]), -1)
        weight = torch.softmax(self.gate(x).squeeze(-1), -1)
        return (weight[..., None] * (code.position[..., :2] + self.correction(x))).sum(-2)

    def locate(self, output: StepOutput) -> Tensor:
        """Where the snitch is expected in the next frame: a `cater.Locate`."""
        place: Tensor = self(output.code)
        return place


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


@torch.no_grad()
def extract(
    model: Loci,
    source: Source,
    *,
    count: int,
    every: int = 10,
    seed: int = 0,
    scene: Tensor | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Latents:
    """Watch clips and keep the codes that predict the last frame, and every `every`-th one before it."""
    parts = []
    eyes = quickened(model, source, count, source.length, batch=batch, labels=True, device=device)
    for clip in clips_in_batches(source, count, model=model, batch=batch, device=device, advance=advance):
        world, _ = snitch_truth(clip, source)
        moments = range((clip.length - 1) % every or every, clip.length, every)
        kept = []
        for t, (_, output) in enumerate(watch(eyes, clip, seed, scene=scene)):
            if t + 1 in moments:
                kept.append(tree_map(torch.clone, output.code))
        code = Code(*(torch.stack(values, 1).cpu() for values in zip(*kept, strict=True)))
        target = project(world[:, list(moments)]).cpu()
        parts.append(Latents(code.position, code.gestalt.half(), code.priority, target))
    return Latents(*(torch.cat(values) for values in zip(*(vars(p).values() for p in parts), strict=True)))


def save(path: Path, latents: dict[str, Latents], facts: dict[str, str]) -> None:
    """Keep the codes of several splits in one safetensors file that knows what it was made of."""
    tensors = {f"{split}.{name}": value for split, part in latents.items() for name, value in vars(part).items()}
    with atomic(path) as part_of:
        save_file(tensors, part_of, metadata=facts)


def load(path: Path, facts: dict[str, str]) -> dict[str, Latents]:
    """Read a file that was made of the same; refuse any other."""
    with safe_open(path, framework="pt") as file:
        there = file.metadata() or {}
        for name, value in facts.items():
            if there.get(name) != value:
                raise UserError(
                    f"{path} was extracted with {name} {there.get(name)!r}, not {value!r}: "
                    "remove it, or choose another --out"
                )
        splits = sorted({name.split(".")[0] for name in file.keys()})  # noqa: SIM118 - it is no mapping
        fields: Any = Latents.__dataclass_fields__
        return {split: Latents(*(file.get_tensor(f"{split}.{name}") for name in fields)) for split in splits}


def train(
    latents: Latents,
    *,
    steps: int = STEPS,
    batch: int = 256,
    rate: float = 2e-3,
    hidden: int = 54,
    seed: int = 0,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Readout:
    """Learn from the training split; a fixed number of steps, so nothing is chosen by the test split."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        readout = Readout(latents.gestalt.shape[-1], hidden).to(device)
    flat = latents.samples()
    data = Latents(*(value.to(device) for value in vars(flat).values()))
    optimiser = torch.optim.Adam(readout.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    draws = random.key(seed, "read-out batches", device=device)
    for step in range(steps):
        index = random.integers(random.fold(draws, step), len(data.target), (batch,))
        loss = (readout(data.code(index)) - data.target[index, 0]).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        advance(1)
    return readout.eval().requires_grad_(False)
