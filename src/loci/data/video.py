"""Video files and folders of images as clips of a fixed length.

`loci.track.video_in` is for whatever a person points a camera at.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loci.config import DataConfig
from loci.data.batch import gather
from loci.data.clip import Clip
from loci.data.picture import Size, read_image, resized
from loci.data.pyav import pyav
from loci.data.video_file import CONTAINERS, LONGEST, Facts, decode, opened, probe, time_stamps
from loci.errors import UserError

log = logging.getLogger(__name__)

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp"})


def negatives(data: DataConfig) -> bool:
    """Whether a run learns on negatives, as footage may ask for."""
    return any(option.replace(" ", "").lower() == "negative=true" for option in data.options)


class _Window(NamedTuple):
    """A clip's place: a video file or a folder of images, its first frame there, and when that is shown."""

    path: Path
    start: int
    at: int | None


class Cut(NamedTuple):
    """How clips are taken from a video; see `open_videos`."""

    every: int | None
    stride: int
    hold: bool
    negative: bool

    def span(self, length: int) -> int:
        """How many frames of the video a clip reaches over."""
        return (length - 1) * self.stride + 1


@dataclass(frozen=True)
class Held:
    """Whole videos as bytes in memory, each decoded once, for training that comes back to them again and again."""

    videos: dict[Path, Tensor] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def of(self, path: Path, size: Size) -> Tensor:
        """All frames that can be read, [N,3,H,W] uint8."""
        with self.lock:  # clips are read by several threads
            if path not in self.videos:
                self.videos[path] = _read_images(image_files(path), size) if path.is_dir() else _whole(path, size)
            return self.videos[path]


def _read_images(files: Sequence[Path], size: Size) -> Tensor:
    pictures = [resized(read_image(file), size) for file in files]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


def _whole(path: Path, size: Size) -> Tensor:
    """A video up to where it is damaged."""
    av = pyav()
    pictures, convert = [], av.video.reformatter.VideoReformatter()
    with opened(path) as (container, stream):
        try:
            for frame in itertools.islice(container.decode(stream), LONGEST):
                pictures.append(resized(np.asarray(convert.reformat(frame, format="rgb24").to_ndarray()), size))
        except av.error.FFmpegError as error:
            log.warning("%s: only its first %d frames can be read (%s)", path, len(pictures), error)
    if not pictures:
        raise UserError(f"no frame of {path} can be read")
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class Videos:
    """Windows of videos, one after another unless told; what is left at a video's end is dropped.

    Attributes:
        windows: where each clip lies.
        size: height and width that frames are brought to.
        length: frames in a clip.
        cut: how clips are taken from the videos.
        held: all frames of the videos read so far, where they are to be kept; else None.
        skipped: what could not be used, and why.
    """

    windows: tuple[_Window, ...]
    size: Size
    length: int
    cut: Cut
    held: Held | None = None
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Nothing is known of what the videos show."""
        return {}

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order; there are no labels to ask for."""
        return gather(self._read, indices, len(self), device)

    def _read(self, n: int) -> Clip:
        path, start, at = self.windows[n]
        span = self.cut.span(self.length)
        if self.held is not None:
            frames = self.held.of(path, self.size)[start : start + span]
            if len(frames) < span:
                raise UserError(f"{path} ends before frame {start + span - 1}, which was asked for")
        elif path.is_dir():
            frames = _read_images(image_files(path)[start : start + span], self.size)
        else:
            frames = decode(path, span, start=start, at=at, size=self.size)
        frames = frames[:: self.cut.stride]
        return Clip((255 - frames if self.cut.negative else frames)[None], index=torch.tensor([n]))


def _natural(path: Path) -> tuple[tuple[int, int | str], ...]:
    """Sorts 2.png before 10.png."""
    parts: list[tuple[int, int | str]] = []
    word = ""
    for letter, after in zip(path.name, [*path.name[1:], ""], strict=True):
        word += letter
        if not after or letter.isdecimal() != after.isdecimal():
            parts.append((0, int(word)) if letter.isdecimal() else (1, word))
            word = ""
    return tuple(parts)


def image_files(folder: Path) -> list[Path]:
    """The images right in a folder, in the order of the numbers in their names."""
    return sorted((p for p in folder.iterdir() if p.suffix.lower() in IMAGES), key=_natural)


def _image_facts(folder: Path) -> Facts:
    files = image_files(folder)
    height, width, _ = read_image(files[0]).shape
    return Facts(len(files), (height, width))


def open_videos(
    path: Path,
    *,
    size: Size | None = None,
    length: int | None = None,
    every: int | None = None,
    stride: int = 1,
    hold: bool = False,
    negative: bool = False,
) -> Videos:
    """A video file, or all videos of a folder.

    Args:
        path: the file or folder.
        size: what to bring frames to; by default the first video's own size.
        length: frames in a clip; by default all of the first video's.
        every: frames from the beginning of a clip to that of the next; by default clips follow one another.
        stride: a clip takes every so-manieth frame.
        hold: decode each video once and keep all of its frames in memory.
        negative: turn colours round, for dark objects: the foreground phase learns on black, where they are nothing.
    """
    if path.is_dir():
        files = sorted((p for p in path.rglob("*") if p.suffix.lower() in CONTAINERS and p.is_file()), key=_natural)
    else:
        files = [path]
    return _windows(path, files, "videos", probe, size, length, Cut(every, stride, hold, negative))


def open_images(
    path: Path,
    *,
    size: Size | None = None,
    length: int | None = None,
    every: int | None = None,
    stride: int = 1,
    hold: bool = False,
    negative: bool = False,
) -> Videos:
    """A folder of images is a video; so is each folder of images inside. The options are those of `open_videos`."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder of images")
    folders = [path, *sorted((p for p in path.rglob("*") if p.is_dir()), key=_natural)]
    folders = [p for p in folders if image_files(p)]
    return _windows(path, folders, "images", _image_facts, size, length, Cut(every, stride, hold, negative))


def _windows(
    path: Path,
    files: list[Path],
    what: str,
    look: Any,
    size: Size | None,
    length: int | None,
    cut: Cut,
) -> Videos:
    """Cut videos into windows; files that cannot be read or are too short are skipped and reported."""
    if cut.stride < 1 or (cut.every is not None and cut.every < 1):
        raise UserError(f"stride={cut.stride} every={cut.every}: both count frames and must be 1 or more")
    if not path.exists() or not files:
        raise UserError(f"{path} holds no {what}" if path.exists() else f"there is no {path}")
    windows: list[_Window] = []
    skipped: list[str] = []
    for file in files:
        try:
            facts: Facts = look(file)
        except UserError as error:
            skipped.append(str(error))
            continue
        size, length = size or facts.size, length or -(-facts.frames // cut.stride)
        span = cut.span(length)
        if facts.frames < span:
            skipped.append(f"{file} has {facts.frames} frames, a clip {span}")
        starts = range(0, facts.frames - span + 1, cut.every or length * cut.stride)
        stamps = time_stamps(file) if len(starts) > 1 and file.is_file() else []
        windows += [_Window(file, start, stamps[start] if start < len(stamps) else None) for start in starts]
    if not windows or size is None or length is None:
        raise UserError(f"none of the {what} in {path} can be used: {skipped[0]}")
    report(path, skipped)
    return Videos(tuple(windows), size, length, cut, Held() if cut.hold else None, skipped)


def report(path: Path, skipped: Sequence[str]) -> None:
    """One line for all that was left out, with the first as an example."""
    if skipped:
        log.warning("%s: %d skipped, first: %s", path, len(skipped), skipped[0])
