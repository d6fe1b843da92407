"""The still background of a video: worked out with a mixture of Gaussians for every pixel, and kept beside the video.

OpenCV's MOG2 with a learning rate of 1e-5, as in the paper. At that rate the mixture forgets what it saw first after
some 100 000 frames, which the paper's training set has and a short video has not: whatever stood in the first frame
would stay for good. So the mixture is first built at MOG2's own decreasing rate, where every frame counts alike, and
then refined at the paper's.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from loci.data.pyav import pyav
from loci.data.video import negatives
from loci.errors import UserError
from loci.track.atomic import atomic
from loci.track.decode import MAX_PIXELS
from loci.track.video_in import open_video

Pixels = NDArray[np.uint8]

LEARNING_RATE = 1e-5
SAMPLE = 150
"""Frames that are looked at."""
LARGEST = 2**19
"""Pixels of the largest background; larger videos are made smaller first, as networks see far less than this."""
_READ_THROUGH = 4000  # frames; a longer file is sampled by jumping
_VERSION = "1"  # part of the cache's key: change it when the result would


def mixture(frames: Sequence[Pixels]) -> Pixels:
    """The background [H,W,3] of frames [H,W,3] that are a fair sample of a video."""
    if not frames:
        raise UserError("no frames to work out a background from")
    model = cv2.createBackgroundSubtractorMOG2(history=len(frames), detectShadows=False)
    model.setBackgroundRatio(0.5)  # the picture is that of the commonest colours, not a mean with rarer ones
    for frame in frames:
        model.apply(frame)
    for frame in frames:
        model.apply(frame, learningRate=LEARNING_RATE)
    return np.ascontiguousarray(model.getBackgroundImage())


def sample(spec: str | Path, count: int = SAMPLE, *, shrink: Callable[[Pixels], Pixels] | None = None) -> list[Pixels]:
    """At most `count` frames spread evenly over a video, made smaller on the way (`limited` unless told how).

    A stream or a camera has no end to spread over; use `mixture` on its first frames.
    """
    shrink = limited if shrink is None else shrink
    with open_video(spec, note=lambda _: None) as video:
        if video.facts.live:
            raise UserError(f"{spec!s} is live: name an image as background, or let it come from the first frames")
        total = video.facts.count
        if total is not None and total > _READ_THROUGH and Path(spec).is_file():
            jumped = [shrink(frame) for frame in _jump(Path(spec), count)]
            if len(jumped) > count // 2:
                return jumped
        return _thinned((frame.pixels for frame in video), count, max(1, (total or 1) // count), shrink)


def limited(pixels: Pixels) -> Pixels:
    """The same, with at most `LARGEST` pixels."""
    height, width = pixels.shape[:2]
    scale = (LARGEST / (height * width)) ** 0.5
    if scale >= 1:
        return pixels
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def _thinned(frames: Iterable[Pixels], count: int, step: int, shrink: Callable[[Pixels], Pixels]) -> list[Pixels]:
    """Every frame `step` apart, then twice as far, ...: evenly spread whatever the length, never 2·count at once."""
    kept: list[Pixels] = []
    for index, frame in enumerate(frames):
        if index % step:
            continue
        kept.append(shrink(frame))
        if len(kept) == 2 * count:
            kept, step = kept[::2], 2 * step
    return kept[:: -(-len(kept) // count)]


def _jump(path: Path, count: int) -> Iterator[Pixels]:
    """The key frames nearest to evenly spaced times."""
    av = pyav()
    with av.open(f"file:{path.resolve()}", options={"max_pixels": str(MAX_PIXELS)}) as container:
        stream = container.streams.video[0]
        size: tuple[int, ...] | None = None
        for time in np.linspace(0, (container.duration or 0) * 0.999, count):
            try:
                container.seek(int(time))
                frame = next(container.decode(stream), None)
            except (av.FFmpegError, ValueError):
                continue  # a damaged place: the sample has enough others
            if frame is not None:
                pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
                turns = round((frame.rotation or 0) / 90) % 4
                pixels = np.ascontiguousarray(np.rot90(pixels, turns))
                size = size or pixels.shape
                if pixels.shape == size:
                    yield pixels


def still_background(spec: str | Path, count: int = SAMPLE) -> Pixels:
    """The background of a video at its own size (or the `LARGEST`); computed once, then read from beside it.

    Kept in a folder `.loci` beside the video, or in the user's cache where that cannot be written, under a name that
    changes when the video does.
    """
    path = Path(spec)
    key = _key(path, count)
    places = [folder / f"background-{path.name}-{key}.png" for folder in (path.resolve().parent / ".loci", _cache())]
    for place in places:
        if place.is_file():
            return read_image(place)
    image = mixture(sample(path, count))
    for place in places:
        if _sealed(place.parent.parent):
            continue
        try:
            write_image(place, image)
            break
        except OSError:
            continue  # read-only: the next place, or no cache at all
    return image


def _sealed(folder: Path) -> bool:
    """Whether a folder is marked as not to be written by anybody, which would not stop root."""
    return folder.is_dir() and not folder.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def _key(path: Path, count: int) -> str:
    """Changes with the content of a file, or of any file in a folder."""
    if not path.exists():
        raise UserError(f"no file or folder {str(path)!r}")
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts = [f"{file.name}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files]
    return hashlib.blake2b("|".join([_VERSION, str(count), *facts]).encode(), digest_size=6).hexdigest()


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "loci"
    except RuntimeError:  # no home
        return Path(tempfile.gettempdir()) / "loci"


def read_image(path: Path) -> Pixels:
    """An image as [H,W,3] RGB."""
    with open_video(path, note=lambda _: None) as video:
        return next(iter(video)).pixels


def write_image(path: Path, pixels: Pixels) -> None:
    """An image [H,W,3] RGB as PNG."""
    good, data = cv2.imencode(".png", np.ascontiguousarray(pixels[..., ::-1]))
    if not good:
        raise UserError(f"cannot make a PNG of an image of shape {pixels.shape}")
    with atomic(path) as part:
        part.write_bytes(data.tobytes())


def trained_on(weights: str | Path) -> Pixels | None:
    """The background a network was trained with, in its true colours, where it is still to be found.

    It is what the config names, or `background.png` in the run's folder, or `NAME.background.png` beside the file.
    """
    from loci import checkpoint

    file = checkpoint.find(weights)
    data = checkpoint.read(file, weights_only=True).config.data
    if data.background and Path(data.background).is_file():
        return read_image(Path(data.background))
    places = (file.with_suffix(".background.png"), file.parent / "background.png")
    picture = next((read_image(place) for place in places if place.is_file()), None)
    return 255 - picture if picture is not None and negatives(data) else picture


def same_scene(first: Pixels, second: Pixels) -> bool:
    """Whether two backgrounds of one size can be of one camera: most pixels agree."""
    difference = np.abs(first.astype(np.int16) - second.astype(np.int16)).max(-1)
    return bool((difference < 26).mean() > 0.7)
