"""Networks to evaluate: a file, a run's folder or a shipped name, of Loci or of PhyDNet."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open

from loci import checkpoint
from loci.errors import UserError
from loci.evaluate import phydnet_train
from loci.evaluate.phydnet import PhyDNet
from loci.model import Loci


class Opened(NamedTuple):
    """A network, and what a report says of it."""

    name: str
    model: Loci | PhyDNet
    supervised: bool
    """Whether it was shown where CATER's snitch is while it learned."""
    digest: str = ""
    """Of the file's content, where the file has one: which network this was."""

    @property
    def short(self) -> str:
        """Its name without the folders it is in."""
        return Path(self.name).stem

    @property
    def parameters(self) -> int:
        """How many numbers it has learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def loci(self) -> Loci:
        """The network, if it is one of Loci."""
        if not isinstance(self.model, Loci):
            raise UserError(f"{self.name} is a PhyDNet, which has no slots: it can be scored on moving_mnist alone")
        return self.model


def open_network(spec: str | Path, device: torch.device | str = "cpu") -> Opened:
    """Load a network to evaluate."""
    path = Path(spec)
    if phydnet_train.is_phydnet(path):
        return Opened(str(spec), phydnet_train.load(path).to(device), False)
    file = checkpoint.find(spec)
    if phydnet_train.is_phydnet(file):
        return Opened(str(spec), phydnet_train.load(file).to(device), False)
    content = checkpoint.read(file, weights_only=True)
    model = checkpoint.build(content, file).to(device).eval()
    supervised = any(stage.supervision > 0 for stage in content.config.train.stages)
    return Opened(str(spec), model, supervised and content.config.model.snitch, digest_of(file))


def digest_of(file: Path) -> str:
    """What a network's file says of its content."""
    with safe_open(file, framework="pt") as content:
        return str((content.metadata() or {}).get("digest", ""))
