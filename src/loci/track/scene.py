"""Which background a video is tracked with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loci.errors import UserError
from loci.model.background import MovingBackground
from loci.track.background import limited, mixture, read_image, same_scene, still_background
from loci.track.decode import Note, Pixels
from loci.track.fit import Fit
from loci.track.video_in import Frame, Video

FIRST = 50
"""Frames of a live video its background is worked out from."""


class Scene(NamedTuple):
    """The background of a video: a picture [h,w,3] of the network's size, or a network that follows it."""

    picture: Pixels
    moving: MovingBackground | None
    turned: bool = False
    """Whether the moving one knows true colours, and the network negatives."""
    origin: str = ""
    """Where it comes from, in words."""


def scene_of(
    video: Video,
    fit: Fit,
    background: str | Path | Pixels | MovingBackground | None,
    known: Pixels | None,
    note: Note,
) -> tuple[Scene, Iterator[Frame]]:
    """The background to track with, and all frames of the video, from the first.

    Args:
        video: what is to be tracked.
        fit: how it is put into the network.
        background: taken as it is; None works it out from the video, or from the first frames of a live one.
        known: what the network was trained with, used in place of what was worked out if it shows the same scene: it
            has seen more, and objects that rest for all of this video are not part of it.
        note: told what the background is, where that is not plain.
    """
    frames = iter(video)
    if isinstance(background, MovingBackground):
        if background.size != fit.network:
            raise UserError(f"the moving background is {background.size}, the network {fit.network}: learn it anew")
        return Scene(np.zeros((*fit.network, 3), np.uint8), background, origin="learned, moving"), frames
    if background is not None:
        picture = read_image(Path(background)) if isinstance(background, str | Path) else background
        named = str(background) if isinstance(background, str | Path) else "a picture that was given"
        return Scene(_fitted(picture, fit), None, origin=named), frames
    if video.facts.live:
        first = list(islice(frames, FIRST))
        frames = chain(first, frames)
        picture = mixture([limited(frame.pixels) for frame in first])
        note(f"{video.facts.name}: its background comes from its first {len(first)} frames; name an image if you can")
        origin = f"worked out from the first {len(first)} frames"
    else:
        picture = still_background(video.facts.name)
        origin = "worked out from the video"
    scene = _fitted(picture, fit)
    if known is not None and same_shape(known.shape[:2], fit.video):
        old = _fitted(known, fit)
        if same_scene(old, scene):
            scene, origin = old, "the one the network was trained with"
    return Scene(scene, None, origin=origin), frames


def learned_for(weights: str | Path, size: tuple[int, int], device: str) -> MovingBackground | None:
    """The moving background a run has learned, which is beside its network."""
    from loci import checkpoint
    from loci.track.learn_background import load

    file = checkpoint.find(weights).parent / f"background_{size[0]}x{size[1]}.safetensors"
    return load(file).to(device) if file.is_file() else None


def same_shape(size: tuple[int, ...], other: tuple[int, int]) -> bool:
    """Whether two pictures have the same ratio of sides, to within a twentieth."""
    return bool(abs(size[0] / size[1] * other[1] / other[0] - 1) < 0.05)


def _fitted(picture: Pixels, fit: Fit) -> Pixels:
    """A background of any size of the same shape, as the network sees it."""
    height, width = picture.shape[:2]
    if not same_shape((height, width), fit.video):
        raise UserError(f"the background is {width}x{height}, the video {fit.video[1]}x{fit.video[0]}: another shape")
    return Fit((height, width), fit.network, fit.letterbox, fit.negative).shrink(picture)
