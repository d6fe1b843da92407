"""`loci imagine`: watch a video up to some frame, then run on in closed loop, beside what came."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from loci.commands import console
from loci.errors import UserError

EXAMPLES = """
  loci imagine balls.mp4 --weights moving_mnist --from 10 --frames 100 --out imagined
"""


@dataclass(frozen=True)
class Imagine:
    """Watch a video, then imagine how it goes on: the network's own prediction is all it sees from then on.

    Writes imagined.mp4 (on the left what came, as long as there was something, on the right what was imagined, its
    slots outlined in their colours) and imagined.csv (where every object is imagined to be, in the video's pixels).
    """

    video: Annotated[str, tyro.conf.Positional]
    """A file, a folder of images, or - for standard input."""
    weights: str
    """A file, a run's folder, or the name of a network that ships."""
    start: Annotated[int, tyro.conf.arg(name="from")] = 10
    """How many frames it watches first."""
    frames: int = 50
    """How many it imagines."""
    out: Path = Path("imagined")
    """The folder to write to."""
    background: Path | None = None
    """A picture of the scene without objects; unless given, worked out from the video."""
    seed: int = 0
    """Of where slots look for objects."""
    device: str = "auto"
    """cpu or cuda; auto takes a GPU where there is one."""


def main(words: list[str]) -> int:
    """Watch, then imagine."""
    asked = console.parse(Imagine, words, "imagine", EXAMPLES)
    if asked.start < 1 or asked.frames < 1:
        raise UserError(f"--from {asked.start} --frames {asked.frames}: both must be 1 or more")
    from loci.track.video_in import check

    check(asked.video)
    from loci.commands.track import Notes, background_of
    from loci.track import open_tracking
    from loci.track.atomic import writable_folder
    from loci.track.imagine import Memory, imagine

    writable_folder(asked.out)
    background, memory = background_of(asked.background), Memory()
    opening = open_tracking(asked.video, asked.weights, background=background, seed=asked.seed, device=asked.device,
                            note=Notes(), watch=memory.remember)  # fmt: skip
    with opening as tracking, console.progress("imagining", asked.start + asked.frames) as advance:
        result = imagine(tracking, memory, asked.start, asked.frames, asked.out, advance)
    console.say(f"watched {asked.start} frames, imagined {asked.frames}; {result.came} of them came")
    if result.came:
        console.say(f"mean absolute error of 255 where something came: {result.error:.2f}")
    console.say(f"{asked.out}/: imagined.mp4, imagined.csv")
    return 0
