"""Any video in: files, folders of images, webcams and streams, as RGB frames one after another in constant memory.

Files and streams are decoded by PyAV (`decode.py`), webcams are read by OpenCV, which does so alike on every system.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import cv2
import numpy as np

from loci.data import pyav
from loci.errors import UserError
from loci.track.decode import ANYTHING, MAX_PIXELS, Note, Opened, Pixels, encoded

log = logging.getLogger(__name__)

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
VIDEOS = frozenset({".mp4", ".avi", ".mov", ".webm", ".mkv", ".gif", ".m4v", ".mpg", ".mpeg", ".ts", ".wmv", ".y4m"})


@dataclass(frozen=True)
class Frame:
    """One frame: its number from 0, its time in seconds, and its RGB pixels [H,W,3]."""

    index: int
    time: float
    pixels: Pixels


@dataclass(frozen=True)
class Facts:
    """What is known of a video before it is read: `count` is None where only reading to the end would tell."""

    name: str
    size: tuple[int, int]
    rate: float
    count: int | None
    live: bool


@dataclass(frozen=True)
class Video:
    """A video being read, once: iterate to get its frames, and close it (or use `with`)."""

    facts: Facts
    frames: Iterator[Frame]
    close: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Frame]:
        return self.frames


def open_video(spec: str | Path, *, raw: tuple[int, int] | None = None, rate: float | None = None,
               note: Note = log.warning) -> Video:  # fmt: skip
    """Open a video and read its first frame.

    Args:
        spec: a file, a folder of images, `camera:N`, or `-` for standard input.
        raw: height and width, when standard input carries bare RGB bytes.
        rate: frames per second; by default what the video says, or 25.
        note: told in plain words what was wrong with a video that could be read only in part.

    Raises:
        UserError: there is no such video, it is not one, or nothing can be read from it.
    """
    name = str(spec)
    if raw is not None and name != "-":
        raise UserError(f"a raw size makes sense for standard input (-) only, not for {name!r}")
    if name == "-":
        opened = _raw(sys.stdin.buffer, raw, rate) if raw else encoded(sys.stdin.buffer, name, rate, note, live=True)
    elif name.startswith("camera:"):
        opened = _camera(name, rate)
    elif not Path(name).exists():
        raise UserError(f"no file or folder {name!r}; a video is one of: {ANYTHING}")
    elif Path(name).is_dir():
        opened = _folder(Path(name), rate, note)
    else:
        mode = Path(name).stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise UserError(f"{name!r} is no ordinary file; a video is one of: {ANYTHING}")
        opened = encoded(name, name, rate, note, live=stat.S_ISFIFO(mode))
    return _started(opened)


def check(spec: str | Path) -> None:
    """Refuse what is no video before anything slow is done; needs no torch, so that the answer comes at once.

    What can be read only once (a stream, a pipe, a camera) is not looked at.
    """
    path = Path(spec)
    if str(spec) != "-" and not str(spec).startswith("camera:") and not path.is_fifo():
        open_video(spec, note=lambda _: None).close()


def _started(opened: Opened) -> Video:
    """Read the first frame, whose size all others get, and number them."""
    try:
        first = next(opened.pictures, None)
        if first is None:
            raise UserError(f"no frame can be read from {opened.name!r}: it is empty, damaged or no video ({ANYTHING})")
    except BaseException:
        opened.close()
        raise
    size: tuple[int, int] = first[1].shape[:2]

    def frames() -> Iterator[Frame]:
        last = -1 / opened.rate
        for index, (time, pixels) in enumerate(itertools.chain([first], opened.pictures)):
            sane = time is not None and math.isfinite(time) and last < time < last + 3600
            last = float(time) if sane and time is not None else last + 1 / opened.rate
            if pixels.shape[:2] != size:  # some formats may change it on the way
                pixels = np.asarray(cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_AREA), np.uint8)
            yield Frame(index, last, pixels)

    return Video(Facts(opened.name, size, opened.rate, opened.count, opened.live), frames(), opened.close)


def _folder(folder: Path, rate: float | None, note: Note) -> Opened:
    """Images in the order of the numbers in their names."""
    inside = sorted(folder.iterdir(), key=_natural)
    images = [path for path in inside if path.suffix.lower() in IMAGES]
    if not images:
        videos = [path.name for path in inside if path.suffix.lower() in VIDEOS]
        hint = f"; it holds videos, so name one of them: {', '.join(videos[:3])}" if videos else ""
        raise UserError(f"the folder {str(folder)!r} holds no images ({', '.join(sorted(IMAGES))}){hint}")

    def pictures() -> Iterator[tuple[None, Pixels]]:
        unreadable = []
        for path in images:
            try:
                picture = _image(path, note)
            except UserError:
                picture = None
            if picture is None:
                unreadable.append(path.name)
            else:
                yield None, picture
        if unreadable:
            some = ", ".join(unreadable[:3])
            note(f"{folder}: {len(unreadable)} of {len(images)} images cannot be read and were left out: {some}")

    return Opened(str(folder), rate or 25.0, len(images), False, pictures(), lambda: None)


def _image(path: Path, note: Note) -> Pixels | None:
    """By FFmpeg, which looks at an image's size before it allocates one; by OpenCV on a machine without PyAV."""
    if not pyav.available():
        from loci.data.picture import read_image

        return read_image(path)
    with closing(encoded(str(path), path.name, None, note, live=False)) as image:
        found = next(image.pictures, None)
    return None if found is None else found[1]


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    """frame2 before frame10."""
    parts = re.split(r"(\d+)", path.name.lower())
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts if part]


def _camera(name: str, rate: float | None) -> Opened:
    number = name.removeprefix("camera:")
    if not number.isdigit():
        raise UserError(f"{name!r}: a camera is camera:0, camera:1, ...")
    loudness = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # what it has to say is in our own error
    camera = cv2.VideoCapture(int(number))
    cv2.utils.logging.setLogLevel(loudness)
    if not camera.isOpened():
        camera.release()
        raise UserError(f"there is no camera {number} here, or another program has it (on Linux: ls /dev/video*)")

    def pictures() -> Iterator[tuple[None, Pixels]]:
        while True:
            good, pixels = camera.read()
            if not good:
                return
            yield None, np.ascontiguousarray(pixels[..., ::-1])

    said = float(camera.get(cv2.CAP_PROP_FPS))
    return Opened(name, rate or (said if 0.01 <= said <= 1000 else 25.0), None, True, pictures(), camera.release)


def _raw(stream: Any, size: tuple[int, int], rate: float | None) -> Opened:
    """Bare RGB bytes, row after row."""
    height, width = size
    if min(size) < 1 or height * width > MAX_PIXELS:
        raise UserError(f"raw pictures of {height} x {width}: both must be positive, and {MAX_PIXELS} pixels at most")

    def pictures() -> Iterator[tuple[None, Pixels]]:
        while len(chunk := stream.read(height * width * 3)) == height * width * 3:
            yield None, np.frombuffer(chunk, np.uint8).reshape(height, width, 3)

    return Opened("-", rate or 25.0, None, True, pictures(), lambda: None)
