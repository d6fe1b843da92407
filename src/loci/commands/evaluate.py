"""`loci evaluate`: the paper's metrics for a network on a source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from loci.commands import console
from loci.errors import UserError

if TYPE_CHECKING:
    from loci.evaluate.report import Report

EXAMPLES = """
  loci evaluate cater --on cater --count 100
  loci evaluate runs/mine --on cater:/data/CATER --out results/mine
  loci evaluate moving_mnist --on moving_mnist --count 1000 --device cuda
  loci evaluate clevrer --on clevrer:/data/CLEVRER --split val
  loci evaluate cater --on clevr:/data/clevr_with_masks_train.tfrecords
"""


@dataclass(frozen=True)
class Evaluate:
    """Score a network on everything that a source knows, and save tables (Markdown, JSON) and pictures.

    Moving MNIST: the closed loop. CATER: the snitch, and what containment does to it. CLEVR: masks on still images.
    CLEVRER: the closed loop, in two protocols. On all of them and on any other source: places, masks, identities,
    object permanence. What a source has no truth for is left out.
    """

    network: Annotated[str, tyro.conf.Positional]
    """A file, a run's folder, or the name of a network that ships."""
    on: str
    """A world (moving_mnist, cater, clevrer, aquarium) or cater:FOLDER, clevrer:FOLDER, clevr:FILE, movi:FOLDER,
    mnist:FILE, video:PATH, images:FOLDER."""
    count: int = 100
    """How many clips."""
    seed: int = 0
    """Of the network's randomness; CATER is done with five of them in any case."""
    split: Literal["train", "val", "test"] | None = None
    """Which clips; test unless given, but val of clevrer:FOLDER, whose test videos have no annotation."""
    world_seed: int = 0
    """Of a world: another seed, other clips."""
    length: int | None = None
    """Frames of a clip, where that can be chosen."""
    batch: int | None = None
    """Clips side by side; as many as fit into half a gigabyte (four on a GPU) unless given."""
    background: Path | None = None
    """A picture of the scene without objects, for sources that have none; worked out from the clips unless given."""
    cache: Path | None = None
    """Keep decoded files in this folder and read them from there the next time; may be stopped, is checked."""
    see_last: bool = False
    """On CATER, answer after the last frame was seen (the paper answers before)."""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto takes a GPU where there is one."""
    out: Path | None = None
    """Where to save; results/NETWORK-SOURCE unless given."""


def main(words: list[str]) -> int:
    """Evaluate."""
    asked = console.parse(Evaluate, words, "evaluate", EXAMPLES)
    if asked.count < 1:
        raise UserError(f"--count {asked.count}: ask for 1 clip or more")
    from loci.evaluate.networks import open_network
    from loci.evaluate.suite import Job, evaluate, usual_split

    device = chosen(asked.device)
    job = Job(
        open_network(asked.network, device),
        asked.on,
        asked.count,
        console.progress,
        seed=asked.seed,
        split=asked.split or usual_split(asked.on),
        world_seed=asked.world_seed,
        length=asked.length,
        batch=asked.batch,
        device=device,
        background=asked.background,
        sees_last=asked.see_last,
        cache=asked.cache,
    )
    out = asked.out or Path("results") / f"{Path(asked.network).stem}-{asked.on.replace(':', '-').replace('/', '_')}"
    for report in evaluate(job):
        show(report, out)
    return 0


def chosen(device: str) -> str:
    """The device that was asked for, if it is there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--device {device}: not to be had here ({reason}); try cpu") from error
    return device


def show(report: Report, out: Path) -> None:
    """Print the tables, save everything, say where."""
    from loci.evaluate.report import shown

    for table in report.tables:
        console.table(table.title, table.header, [[shown(entry) for entry in row] for row in table.rows])
        if table.note:
            console.say(table.note)
    console.say("saved: " + ", ".join(map(str, report.save(out))))
