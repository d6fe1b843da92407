"""`loci reproduce`: an experiment of the paper, its figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from loci.commands import console
from loci.commands.evaluate import chosen, show
from loci.errors import UserError

if TYPE_CHECKING:
    from loci.config import Config
    from loci.evaluate.reproduce import Experiment

EXAMPLES = """
  loci reproduce moving-mnist --rival runs/phydnet
  loci reproduce cater --on cater:/data/CATER
  loci reproduce cater-unsupervised --network runs/mine --count 1000
  loci reproduce clevr --on clevr:/data/clevr_with_masks_train.tfrecords
  loci reproduce ablations-cell --train --frames 50000 --set data.batch=16
"""

Name = Literal[
    "moving-mnist",
    "cater",
    "cater-unsupervised",
    "containment",
    "clevr",
    "clevrer",
    "lesions",
    "lesions-moving-mnist",
    "gestalt",
    "ablations-cell",
    "ablations-inputs",
    "ablations-losses",
    "ablations-credit",
]


@dataclass(frozen=True)
class Reproduce:
    """Run one of the paper's experiments and print its figures beside ours.

    With a network that ships or that is named; with --train, from nothing. The ablations compare training runs, so they
    need --train; a run that is there already is not trained again.
    """

    name: Annotated[Name, tyro.conf.Positional]
    """Which experiment."""
    network: str | None = None
    """A file or a run's folder, instead of the network that ships."""
    rival: str | None = None
    """moving-mnist: a PhyDNet (`loci train phydnet`) to go beside Loci."""
    on: str | None = None
    """Another source than the paper's world, such as cater:FOLDER."""
    count: int | None = None
    """How many clips, instead of as many as in the paper."""
    train: bool = False
    """Train what is needed first, into the folder runs of --out."""
    preset: str | None = None
    """What to train, instead of the experiment's own preset."""
    set: tuple[str, ...] = ()
    """Changes to the preset, as train.updates=1000 or data.batch=4."""
    frames: int = 400_000
    """Ablations: how many frames every arm sees."""
    seed: int = 0
    """Of the network's randomness at evaluation, and of what is trained here."""
    world_seed: int = 0
    """Of a world: another seed, other clips."""
    length: int | None = None
    """Frames of a clip, where that can be chosen."""
    batch: int | None = None
    """Clips side by side at evaluation."""
    background: Path | None = None
    """A picture of the scene without objects, for sources that have none."""
    cache: Path | None = None
    """Keep decoded files in this folder and read them from there the next time; may be stopped, is checked."""
    see_last: bool = False
    """On CATER, answer after the last frame was seen (the paper answers before)."""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto takes a GPU where there is one."""
    out: Path | None = None
    """Where to save; results/NAME unless given."""


def main(words: list[str]) -> int:
    """Reproduce."""
    asked = console.parse(Reproduce, words, "reproduce", EXAMPLES)
    from loci.evaluate import ablations

    out = asked.out or Path("results") / asked.name
    if asked.count is not None and asked.count < 1:
        raise UserError(f"--count {asked.count}: ask for 1 clip or more")
    if asked.name in ablations.STUDIES:
        compare(asked, out)
    else:
        experiment(asked, out)
    return 0


def compare(asked: Reproduce, out: Path) -> None:
    """An ablation."""
    import loci
    from loci.evaluate import ablations
    from loci.evaluate.reproduce import unsupervised

    if not asked.train:
        raise UserError(f"{asked.name} compares training runs, which takes long: say --train, and --frames for less")
    base = unsupervised(_config(asked, "cater"))
    with console.progress(asked.name, len(ablations.STUDIES[asked.name])) as advance:
        report = ablations.run(asked.name, base, out, loci.train, frames=asked.frames, told=advance)
    show(report, out)


def experiment(asked: Reproduce, out: Path) -> None:
    """Any other."""
    from loci.evaluate.networks import open_network
    from loci.evaluate.reproduce import EXPERIMENTS, Asked, shipped
    from loci.evaluate.suite import Job, usual_split

    plan, device = EXPERIMENTS[asked.name], chosen(asked.device)
    source = asked.on or plan.source
    rival = asked.rival
    if asked.train:
        network = _trained(asked, plan, out)
        rival = _trained_rival(asked, device, out) if asked.name == "moving-mnist" and rival is None else rival
    else:
        network = asked.network or shipped(plan.networks)
    job = Job(
        open_network(network, device),
        source,
        asked.count or plan.count,
        console.progress,
        split=usual_split(source),
        seed=asked.seed,
        world_seed=asked.world_seed,
        length=asked.length,
        batch=asked.batch,
        device=device,
        background=asked.background,
        sees_last=asked.see_last,
        cache=asked.cache,
    )
    for report in plan.steps(Asked(asked.name, job, out, rival)):
        show(report, out)


def _trained(asked: Reproduce, plan: Experiment, out: Path) -> str:
    """A run's folder: trained now, or before by the same command."""
    import loci
    from loci.evaluate.reproduce import unsupervised

    folder = out / "runs" / "loci"
    if folder.exists():
        console.say(f"{folder} is there: using its network")
        return str(folder)
    config = _config(asked, plan.preset)
    loci.train(unsupervised(config) if asked.name == "cater-unsupervised" else config, folder)
    return str(folder)


def _trained_rival(asked: Reproduce, device: str, out: Path) -> str:
    """The same for PhyDNet, which goes on where it was stopped."""
    from loci.evaluate.reproduce import phydnet

    updates = dict(_changes(asked)).get("train.updates")
    with console.progress("PhyDNet", updates) as advance:
        folder = phydnet(
            out / "runs" / "phydnet",
            _config(asked, "moving_mnist").model.size,
            updates,
            asked.seed,
            device,
            lambda steps, loss: advance(steps, f"loss {loss:.3g}"),
        )
    return str(folder)


def _config(asked: Reproduce, name: str) -> Config:
    from loci.evaluate.reproduce import preset

    changes = {"train.seed": asked.seed, "train.device": asked.device, **dict(_changes(asked))}
    return preset(asked.preset or name, changes)


def _changes(asked: Reproduce) -> Iterator[tuple[str, Any]]:
    """name=value, the value as JSON or else as it stands."""
    for word in asked.set:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"--set {word}: write NAME=VALUE, such as train.updates=1000")
        try:
            yield name, json.loads(text)
        except json.JSONDecodeError:
            yield name, text
