"""`loci track`: any video in; tracks, masks and a picture out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from loci.commands import console
from loci.errors import UserError

if TYPE_CHECKING:
    from loci.track.clock import Clock
    from loci.track.outputs import Summary

EXAMPLES = """
  loci track tank.mp4 --weights cater --out tracks
  loci track frames/ --weights runs/tank --out tracks --no-masks
  loci track camera:0 --weights runs/tank --background empty.png      (Ctrl-C ends it)
  ffmpeg -i rtsp://... -f matroska - | loci track - --weights runs/tank
  ... | loci track - --raw 240x320 --rate 25 --weights runs/tank      (bare RGB bytes)
"""


@dataclass(frozen=True)
class Track:
    """Find and follow every object of a video from a still camera; write tracks, masks, codes, an overlay and a report.

    Live video (a camera or a stream) is followed frame by frame: the answer to a frame waits for no later one.
    """

    video: Annotated[str, tyro.conf.Positional]
    """A file, a folder of images, camera:N, or - for standard input."""
    weights: str
    """A file, a run's folder, or the name of a network that ships."""
    out: Path = Path("tracks")
    """The folder to write to."""
    background: Path | None = None
    """A picture of the scene without objects, or a moving background (.safetensors) from `loci background`; unless
    given, worked out from the video and kept beside it."""
    fit: Literal["auto", "letterbox", "stretch"] = "auto"
    """How the video is brought to the network's size; auto adds bars where stretching would change shapes by 10%."""
    slots: int | None = None
    """The most objects at a time, unless the network's own number."""
    forget: float | None = None
    """Seconds out of sight after which an object is let go and its slot looks for another (inf: never); by default 2
    for a network trained on footage, where things come and go, and never for others."""
    jump: float | None = None
    """A centre that moves further than this share of the longer side in a frame is another object's and gets a new id,
    for instance 0.1; by default none does. For ids by slots only."""
    trim: Literal["auto", "yes", "no"] = "auto"
    """Whether to cut masks to what differs from the background in this very frame, sharper where the background is
    right. Auto does for a network trained on footage: it has learned on black, where masks may spread for nothing."""
    ids: Literal["auto", "slots", "motion"] = "auto"
    """What ids stay with: slots, as in the paper; or motion, the path of an object from slot to slot. Auto is motion
    for a network trained on footage, where people pass each other, and slots for others."""
    rate: float | None = None
    """Frames per second, unless what the video says."""
    raw: str | None = None
    """HEIGHTxWIDTH of bare RGB bytes on standard input."""
    seed: int = 0
    """Of where slots look for objects."""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto takes a GPU where there is one."""
    overlay: bool = True
    """Write overlay.mp4: masks, outlines, centres, trails and ids on the video."""
    csv: bool = True
    """Write tracks.csv: one line for each object and frame."""
    mot: bool = True
    """Write mot.txt: MOTChallenge."""
    masks: bool = True
    """Write masks.json: COCO run lengths in the layout of YouTube-VIS."""
    codes: bool = True
    """Write codes.npz: what and where of every slot."""
    report: bool = True
    """Write report.html: all of it to look at."""


@dataclass
class Notes:
    """Warnings, said at once and kept for the report."""

    kept: list[str] = field(default_factory=list)

    def __call__(self, text: str) -> None:
        """One more."""
        self.kept.append(text)
        console.warn(text)


def main(words: list[str]) -> int:
    """Track."""
    asked = console.parse(Track, words, "track", EXAMPLES)
    from loci.track.video_in import check

    check(asked.video)
    from loci.track import open_tracking
    from loci.track.atomic import writable_folder
    from loci.track.outputs import Outputs, save

    raw = None if asked.raw is None else size_of(asked.raw)
    notes = Notes()
    outputs = Outputs(asked.overlay, asked.csv, asked.mot, asked.masks, asked.codes, asked.report)
    writable_folder(asked.out)
    with open_tracking(
        asked.video,
        asked.weights,
        background=background_of(asked.background),
        letterbox={"auto": None, "letterbox": True, "stretch": False}[asked.fit],
        slots=asked.slots,
        forget=asked.forget,
        jump=asked.jump,
        trim=None if asked.trim == "auto" else asked.trim == "yes",
        ids=None if asked.ids == "auto" else asked.ids,
        seed=asked.seed,
        device=asked.device,
        raw=raw,
        rate=asked.rate,
        note=notes,
    ) as tracking:
        facts = tracking.facts
        settings: dict[str, Any] = {
            "video": facts.name,
            "size": f"{facts.size[1]} x {facts.size[0]}",
            "frames per second": f"{facts.rate:g}",
            "weights": asked.weights,
            "network": f"{tracking.fit.network[1]} x {tracking.fit.network[0]}, {tracking.slots} slots",
            "fit": "letterbox" if tracking.fit.letterbox else "stretch",
            "background": tracking.scene.origin,
            "forget": "never" if math.isinf(tracking.forget) else f"after {tracking.forget:g} s out of sight",
            "jump": "no matter" if asked.jump is None else f"{asked.jump:g} of the longer side is another object",
            "trim": "masks are cut to what differs from the background" if tracking.trim else "no",
            "ids": "by motion" if tracking.by_motion else "by slot",
            "seed": asked.seed,
            "device": tracking.model.device,
        }
        with console.progress("tracking", facts.count) as advance:
            summary = save(
                tracking, asked.out, outputs, settings, notes=notes.kept,
                told=lambda frame: advance(1, f"{len(frame.ids)} objects"),
            )  # fmt: skip
    tell(summary, tracking.clock, asked.out)
    return 0


def tell(summary: Summary, clock: Clock, out: Path) -> None:
    """How many, how fast, and where it is."""
    from loci.track.write_report import speeds

    ended = ", then you stopped it" if summary.stopped else ""
    console.say(f"{summary.frames} frames, {summary.ids} objects{ended}")
    console.say("speed: " + "; ".join(f"{name} {value}" for name, value in speeds(clock, summary.frames).items()))
    written = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    console.say(f"{out}/: {', '.join(written)}")


def size_of(text: str) -> tuple[int, int]:
    """Height and width of "240x320"."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"--raw {text!r}: expected HEIGHTxWIDTH, such as 240x320")
    return int(parts[0]), int(parts[1])


def background_of(path: Path | None) -> Any:
    """A picture's path, or a moving background; None stays None."""
    if path is None or path.suffix != ".safetensors":
        if path is not None and not path.is_file():
            raise UserError(f"--background {str(path)!r}: no such file; `loci background VIDEO --out FILE` makes one")
        return path
    from loci.track.learn_background import load

    return load(path)
