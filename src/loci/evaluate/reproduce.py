"""What `loci reproduce` does: each experiment of the paper by its name, from networks that ship or from nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from loci import checkpoint, presets
from loci.config import Config
from loci.data.source import Split
from loci.errors import UserError
from loci.evaluate import (
    ablations,
    cater,
    cater_readout,
    clevrer,
    containment,
    gestalt,
    lesions,
    moving_mnist,
    phydnet_train,
)
from loci.evaluate.networks import open_network
from loci.evaluate.report import Entry, Report
from loci.evaluate.suite import Job, forecast_digits, imagine, localise, segment

LEARNED_FROM = "clips that the read-out learned from"

Steps = Callable[["Asked"], Iterator[Report]]


@dataclass(frozen=True)
class Asked:
    """An experiment, as it was asked for."""

    name: str
    work: Job
    """The network and its source."""
    out: Path
    """Where what takes long to make is kept."""
    rival: str | None = None
    """A PhyDNet to go beside Loci."""


@dataclass(frozen=True)
class Experiment:
    """One of the paper's.

    Attributes:
        networks: Names of networks that ship, the first that is there is taken; empty where it trains its own.
        source: What it is done on, unless told otherwise.
        count: How many clips the paper takes, or about as many as its figure shows.
        preset: What `--train` trains.
        steps: How it is done.
    """

    networks: tuple[str, ...]
    source: str
    count: int
    preset: str
    steps: Steps


def digits(asked: Asked) -> Iterator[Report]:
    """Table 2, Loci beside PhyDNet where there is one."""
    rival = None if asked.rival is None else open_network(asked.rival, asked.work.device)
    yield asked.work.stamped(forecast_digits(asked.work, rival))


def snitch(asked: Asked) -> Iterator[Report]:
    """Table 1 and the appendix's tables, supervised."""
    reports = list(localise(asked.work))
    if not reports:
        raise UserError(
            f"{asked.work.network.name} has no head for the snitch: try `loci reproduce cater-unsupervised`"
        )
    yield from (asked.work.stamped(report) for report in reports)


def snitch_contained(asked: Asked) -> Iterator[Report]:
    """The containment curve: of the network's own head, or of a read-out where it has none."""
    answers = snitch if asked.work.network.loci().config.snitch else snitch_unsupervised
    yield from (report for report in answers(asked) if report.name.startswith("containment"))


def snitch_unsupervised(asked: Asked) -> Iterator[Report]:
    """Table 1, unsupervised: codes to a file, a read-out from it, its answers on the test clips."""
    job = asked.work
    network = job.network.loci()
    readout, learned_from = read_out(asked)
    tests = max(1, round(0.3 * job.count))
    source = job.source()
    options = {**job.options(), "count": tests}
    with job.progress("the snitch, five seeds", min(tests, len(source))) as advance:
        found = cater.follow(network, source, readout.locate, scene=job.scene, advance=advance, **options)
    small = sum(parameter.numel() for parameter in readout.parameters())
    shown = "yes: this is not the unsupervised number" if job.network.supervised else "no"
    facts: dict[str, Entry] = {
        "network was shown the snitch": shown,
        "parameters of the read-out": small,
        LEARNED_FROM: learned_from,
    }
    parameters = job.network.parameters + small
    report = cater.report("cater-unsupervised", found, parameters, cater.SEEDS, job.sees_last, cater.UNSUPERVISED)
    yield job.stamped(dataclasses.replace(report, facts={**report.facts, **facts}))
    yield job.stamped(containment.report(found, "containment-unsupervised"))


def read_out(asked: Asked) -> tuple[cater_readout.Readout, int]:
    """A read-out, trained on the codes of the training clips, and of how many clips."""
    job = asked.work
    latents = codes_of(job, asked.out / "latents.safetensors")
    steps = cater_readout.STEPS
    with job.progress("read-out", steps) as advance:
        readout = cater_readout.train(latents, steps=steps, seed=job.seed, device=job.device, advance=advance)
    return readout, len(latents.target)


def codes_of(job: Job, path: Path) -> cater_readout.Latents:
    """The training clips' codes: 70 of 100 clips, extracted once."""
    train: Split = "train"
    count = max(1, round(0.7 * job.count))
    facts = {"network": f"{job.network.short} {job.network.digest}", "source": job.spec, "seed": str(job.seed)}
    facts |= {"count": str(count), "world seed": str(job.world_seed), "length": str(job.length)}
    if path.exists():
        return cater_readout.load(path, facts)[train]
    source = job.source(split=train)
    wanted = min(count, len(source))
    with job.progress("codes of the training clips", wanted) as advance:
        latents = cater_readout.extract(
            job.network.loci(),
            source,
            seed=job.seed,
            scene=job.scene,
            advance=advance,
            **{**job.options(), "count": count},
        )
    if len(latents.target) == wanted:
        cater_readout.save(path, {train: latents}, facts)
    return latents


def stills(asked: Asked) -> Iterator[Report]:
    """Table 5."""
    yield asked.work.stamped(segment(asked.work))


def collisions(asked: Asked) -> Iterator[Report]:
    """CLEVRER in closed loop, in both protocols."""
    for protocol in (clevrer.PAPER, clevrer.LATER):
        yield asked.work.stamped(imagine(asked.work, protocol))


def lesion(asked: Asked) -> Iterator[Report]:
    """Noise on the codes: on CATER or on Moving MNIST, as the source has it."""
    job = asked.work
    network, cells = job.network.loci(), len(lesions.cells(lesions.LEVELS))
    learned: dict[str, Entry] = {}
    if job.kind == "moving_mnist":
        source = job.source(20)
        with job.progress("lesions", cells * min(job.count, len(source))) as advance:
            report = lesions.moving_mnist(network, source, seed=job.seed, advance=advance, **job.options())
        shown = lesions.imagined_pictures(network, source, seed=job.seed, device=job.device)
    else:
        source = job.source()
        locate: cater.Locate = cater.by_head
        if not network.config.snitch:
            readout, learned[LEARNED_FROM] = read_out(asked)
            locate = readout.locate
        with job.progress("lesions", cells * min(job.count, len(source))) as advance:
            report = lesions.cater(
                network, source, locate, seed=job.seed, scene=job.scene, advance=advance, **job.options()
            )
        shown = lesions.decoder_pictures(network, source, seed=job.seed, scene=job.scene, device=job.device)
    facts, pictures = {**report.facts, **learned}, {**report.pictures, "decoder": shown}
    yield job.stamped(dataclasses.replace(report, facts=facts, pictures=pictures))


def codes(asked: Asked) -> Iterator[Report]:
    """The Gestalt codes from inside."""
    job = asked.work
    source = job.source()
    with job.progress("Gestalt codes", gestalt.CODES) as advance:
        kept = gestalt.collect(
            job.network.loci(),
            source,
            clips=job.count,
            seed=job.seed,
            scene=job.scene,
            device=job.device,
            advance=advance,
        )
    yield job.stamped(gestalt.report(job.network.loci(), kept, dict(source.names), seed=job.seed))


EXPERIMENTS: dict[str, Experiment] = {
    "moving-mnist": Experiment(("moving_mnist",), "moving_mnist", moving_mnist.COUNT, "moving_mnist", digits),
    "cater": Experiment(("cater_supervised", "cater"), "cater", 1650, "cater", snitch),
    "cater-unsupervised": Experiment(("cater_unsupervised", "cater"), "cater", 5500, "cater", snitch_unsupervised),
    "containment": Experiment(("cater_supervised", "cater"), "cater", 1650, "cater", snitch_contained),
    "clevr": Experiment(("cater",), "cater", 1000, "cater", stills),
    "clevrer": Experiment(("clevrer", "cater"), "clevrer", 100, "clevrer", collisions),
    "lesions": Experiment(("cater_supervised", "cater"), "cater", 100, "cater", lesion),
    "lesions-moving-mnist": Experiment(("moving_mnist",), "moving_mnist", 1000, "moving_mnist", lesion),
    "gestalt": Experiment(("cater",), "cater", 100, "cater", codes),
}
"""All that need one network; the ablations train many."""

NAMES = (*EXPERIMENTS, *ablations.STUDIES)


def shipped(names: tuple[str, ...]) -> str:
    """The first of these networks that ships."""
    for name in names:
        if (checkpoint.WEIGHTS / f"{name}.safetensors").is_file():
            return name
    raise UserError(
        f"no network {' or '.join(names)} ships with this version: name one with --network, or train one with --train"
    )


def unsupervised(config: Config) -> Config:
    """The same run with no word about the snitch."""
    stages = tuple(replace(stage, supervision=0.0) for stage in config.train.stages)
    return replace(config, model=replace(config.model, snitch=False), train=replace(config.train, stages=stages))


def preset(name: str, changes: dict[str, object]) -> Config:
    """A preset with changes by dotted path."""
    if name not in presets.PRESETS:
        raise UserError(f"no preset {name!r}; choose from {', '.join(presets.PRESETS)}")
    return ablations.changed(presets.PRESETS[name](), changes)


def phydnet(
    out: Path, size: tuple[int, int], updates: int | None, seed: int, device: str, told: phydnet_train.Told
) -> Path:
    """Train PhyDNet on what Loci is trained on, or go on; return its folder."""
    from loci.worlds.moving_mnist import MovingMnist

    recipe = phydnet_train.Recipe(seed=seed)
    recipe = recipe if updates is None else replace(recipe, updates=updates)
    source = MovingMnist(split="train", seed=seed, size=size, length=recipe.given + recipe.steps)
    phydnet_train.train(out, source, recipe, device=device, told=told)
    return out
