"""`loci train phydnet`: the paper's rival on Moving MNIST, trained on the same digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loci.commands import console
from loci.errors import UserError

EXAMPLES = """
  loci train phydnet --out runs/phydnet
  loci train phydnet --out runs/phydnet --updates 20000 --batch 64 --device cuda
  loci reproduce moving-mnist --rival runs/phydnet
"""


@dataclass(frozen=True)
class TrainPhyDNet:
    """Train PhyDNet on Moving MNIST: ten frames seen, ten predicted. The same command goes on with a stopped run."""

    out: Path
    """The run's folder."""
    updates: int = 200_000
    """Batches of sequences."""
    batch: int = 16
    """Sequences in a batch."""
    rate: float = 1e-3
    """The learning rate; it falls to zero along a cosine."""
    seed: int = 0
    """Of the weights, the sequences and the teacher's choices."""
    save_every: int = 1000
    """Updates between two savings."""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto takes a GPU where there is one."""


def main(words: list[str]) -> int:
    """Train, or go on training."""
    asked = console.parse(TrainPhyDNet, words, "train phydnet", EXAMPLES)
    from loci.commands.evaluate import chosen
    from loci.evaluate.phydnet_train import Recipe, train
    from loci.worlds.moving_mnist import MovingMnist

    if asked.save_every < 1:
        raise UserError(f"--save-every {asked.save_every}: it must be 1 or more")
    recipe = Recipe(updates=asked.updates, batch=asked.batch, rate=asked.rate, seed=asked.seed)
    source = MovingMnist(split="train", seed=asked.seed, length=recipe.given + recipe.steps)
    with console.progress("PhyDNet", asked.updates) as advance:
        train(
            asked.out,
            source,
            recipe,
            device=chosen(asked.device),
            save_every=asked.save_every,
            told=lambda steps, loss: advance(steps, f"loss {loss:.4g}"),
        )
    console.say(
        f"{asked.out}: PhyDNet after {asked.updates} updates; `loci reproduce moving-mnist --rival {asked.out}`"
    )
    return 0
