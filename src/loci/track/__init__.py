"""A video in, tracks and pictures out: `for frame in loci.track("tank.mp4", weights): frame.positions, frame.masks`.

decode, video_in   files, folders, cameras and streams as RGB frames
fit                between the video's pixels and the network's
background         the scene without its objects
tracker            the network's answer for each frame, in the video's pixels
write_*, draw      tables, masks, codes, the overlay and the report
footage            what a network for a video should be like
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loci.model import Loci
    from loci.model.background import MovingBackground
    from loci.track.clock import Clock
    from loci.track.decode import Note, Pixels
    from loci.track.fit import Fit
    from loci.track.scene import Scene
    from loci.track.tracker import Tracked
    from loci.track.video_in import Facts, Frame


GONE = 2.0
"""Seconds out of sight after which an object has left, for a network that was trained on footage: there, things come
and go. In a world, and in the data sets of the paper, what is out of sight is behind something or inside it."""


@dataclass(frozen=True)
class Tracking:
    """A video being tracked: its frames, and what they are tracked with."""

    frames: Iterator[Tracked]
    coming: Iterator[Frame]
    """The video's own frames; those that `frames` has not taken yet."""
    facts: Facts
    model: Loci
    fit: Fit
    scene: Scene
    clock: Clock
    slots: int
    forget: float
    """Seconds out of sight after which an object is let go; infinite for never."""
    by_motion: bool
    """Whether ids go on along the paths of objects, and not with the slots."""
    trim: bool
    """Whether masks are cut to what differs from the background."""


@contextmanager
def open_tracking(
    video: str | Path,
    weights: str | Path | Loci,
    *,
    background: str | Path | Pixels | MovingBackground | None = None,
    letterbox: bool | None = None,
    slots: int | None = None,
    forget: float | None = None,
    jump: float | None = None,
    trim: bool | None = None,
    ids: str | None = None,
    seed: int = 0,
    device: str = "auto",
    raw: tuple[int, int] | None = None,
    rate: float | None = None,
    negative: bool | None = None,
    note: Note | None = None,
    **hooks: Any,
) -> Iterator[Tracking]:
    """Open a video and a network and put them together; see `track` for the arguments."""
    import logging
    import math

    from loci import checkpoint
    from loci.data.video import negatives
    from loci.errors import UserError
    from loci.track.background import trained_on
    from loci.track.clock import Clock
    from loci.track.fit import Fit
    from loci.track.scene import learned_for, scene_of
    from loci.track.tracker import follow
    from loci.track.video_in import open_video

    if slots is not None and slots < 1:
        raise UserError(f"slots is {slots}; it must be 1 or more")
    if forget is not None and not forget >= 0:
        raise UserError(f"forget is {forget} s; it must be 0 or more, or inf for never")
    if jump is not None and jump <= 0:
        raise UserError(f"jump is {jump}; it must be more than 0, a share of the video's longer side")
    if ids not in (None, "slots", "motion"):
        raise UserError(f"ids by {ids!r}: choose slots or motion")
    note = note or logging.getLogger(__name__).warning
    with open_video(video, raw=raw, rate=rate, note=note) as opened:
        model = network(weights, device)
        device = str(model.device)
        data = None
        if isinstance(weights, str | Path):
            data = checkpoint.read(checkpoint.find(weights), weights_only=True).config.data
        if negative is None:
            negative = data is not None and negatives(data)
        footage = data is not None and data.source in ("video", "images")
        if forget is None:
            forget = GONE if footage else math.inf
        by_motion = footage if ids is None else ids == "motion"
        trim = footage if trim is None else trim
        fit = Fit.of(opened.facts.size, model.size, letterbox, negative)
        clock = Clock()
        with clock("background"):
            known, learned = None, None
            if background is None and isinstance(weights, str | Path):
                known, learned = trained_on(weights), learned_for(weights, model.size, device)
            scene, frames = scene_of(opened, fit, background if learned is None else learned, known, note)
            if learned is None and scene.moving is not None:
                scene = scene._replace(turned=fit.negative)
        patience = None if math.isinf(forget) else round(forget * opened.facts.rate)
        followed = follow(model, frames, fit, scene, seed=seed, slots=slots, forget=patience, jump=jump, trim=trim,
                          by_motion=by_motion, rate=opened.facts.rate, clock=clock, **hooks)  # fmt: skip
        slots = slots or model.config.slots
        yield Tracking(followed, frames, opened.facts, model, fit, scene, clock, slots, forget, by_motion, trim)


def network(weights: str | Path | Loci, device: str = "auto") -> Loci:
    """A network ready to track: from a file, a run's folder, the name of one that ships, or already one."""
    import torch

    from loci.errors import UserError

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"there is no GPU here for --device {device}; use --device cpu")
    if isinstance(weights, torch.nn.Module):
        return weights.to(device).eval()
    from loci.checkpoint import load

    return load(weights).to(device).eval()


def track(video: str | Path, weights: str | Path | Loci, **options: Any) -> Iterator[Tracked]:
    """Find and follow every object: yields a `Tracked` for each frame, as soon as it has been seen.

    Args:
        video: a file, a folder of images, `camera:N`, or `-` for standard input.
        weights: a file, a run's folder, the name of a network that ships, or a `Loci`.
        **options: `background` (an image, its path, or a `MovingBackground`; by default what the network was trained
            with if it shows the same scene, else worked out from the video),
            `letterbox` (False stretches; by default bars are added where stretching would change shapes by a tenth),
            `slots` (the most objects), `forget` (seconds out of sight after which a slot looks for another object; by
            default `GONE` for a network trained on footage, else never: `math.inf`), `jump` (a centre that moves by
            more than this share of the video's longer side in a frame is
            another object's, and gets a new id; by default none does), `trim` (cut masks to what differs from the
            background in this very frame; by default for a network trained on footage), `ids` ("slots": an id is a
            slot's object, as in the paper; "motion": an id goes on along its object's path, from slot to slot; by
            default that for a network trained on footage), `seed`, `device`, `raw` (height and width of bare RGB on
            standard input), `rate` (frames per second), `negative` (whether the network wants negatives; a file or a
            run says it by itself), `note` (told what was wrong with a damaged video).
    """
    with open_tracking(video, weights, **options) as tracking:
        yield from tracking.frames


class _Callable(ModuleType):
    """`loci.track` is this package and also the function: whoever imports one must not lose the other."""

    def __call__(self, video: str | Path, weights: str | Path | Loci, **options: Any) -> Iterator[Tracked]:
        """See `track`."""
        return track(video, weights, **options)


sys.modules[__name__].__class__ = _Callable
