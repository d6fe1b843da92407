"""Video files and folders of images as clips of a fixed length.

The decoder here is for files of known length that are read whole or in windows; `loci.track.video_in` is the one for
whatever a person points a camera at.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from loci.config import DataConfig
from loci.data.batch import gather
from loci.data.clip import Clip
from loci.data.picture import LARGEST, Pixels, Size, resized
from loci.data.pyav import pyav
from loci.errors import UserError

log = logging.getLogger(__name__)

# The container is told, not guessed: FFmpeg would otherwise follow playlists and scripts to other files.
CONTAINERS = {
    ".avi": "avi",
    ".mp4": "mp4",
    ".m4v": "mp4",
    ".mov": "mov",
    ".mkv": "matroska",
    ".webm": "matroska",
    ".gif": "gif",
}
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp"})
LONGEST = 100_000


class Facts(NamedTuple):
    """What a file says of itself: frames, height and width."""

    frames: int
    size: Size


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    av = pyav()
    kind = CONTAINERS.get(path.suffix.lower())
    if kind is None:
        raise UserError(f"{path} is no video: choose one of {', '.join(CONTAINERS)}")
    try:
        with av.open(str(path), format=kind) as container:
            if not container.streams.video:
                raise UserError(f"{path} holds no pictures")
            stream = container.streams.video[0]
            if not 0 < stream.codec_context.width * stream.codec_context.height <= LARGEST:
                raise UserError(
                    f"{path} claims pictures of {stream.codec_context.width}x{stream.codec_context.height} pixels; "
                    f"at most {LARGEST} are read"
                )
            yield container, stream
    except (av.error.FFmpegError, OSError) as error:
        raise UserError(f"{path} cannot be read as video: {error}") from error


def probe(path: Path) -> Facts:
    """Look at a file's head and index only.

    Raises:
        UserError: it is no video, or shorter than it claims.
    """
    with _opened(path) as (container, stream):
        frames, index = stream.frames, stream.index_entries
        if frames and len(index) and len(index) < frames:
            raise UserError(f"{path} is cut off: it should have {frames} frames and has {len(index)}")
        if len(index) and max(entry.pos + entry.size for entry in index) > path.stat().st_size:
            raise UserError(f"{path} is cut off: its index leads beyond its end")
        # An index may name key frames only, as that of a webm does.
        frames = frames or sum(packet.size > 0 for packet in container.demux(stream))
        return Facts(frames, (stream.codec_context.height, stream.codec_context.width))


def decode(path: Path, count: int, *, start: int = 0, at: int | None = None, size: Size | None = None) -> Tensor:
    """Frames start … start + count - 1 of a video, [count,3,H,W] uint8 RGB.

    Args:
        path: the file.
        count: how many frames.
        start: the first one's number.
        at: the first one's time stamp, if known (`time_stamps`): then the way there is short.
        size: what to bring frames to; by default their own.

    Raises:
        UserError: the video is damaged or has fewer frames.
    """
    av = pyav()
    if not 0 < count <= LONGEST:
        raise UserError(f"{count} frames at once: choose from 1 to {LONGEST}")
    with _opened(path) as (container, stream):
        if stream.codec_context.name == "mjpeg":
            # Without this a damaged picture is patched up and passes for a whole one.
            stream.codec_context.options = {"err_detect": "explode"}
        frames = _sought(container, stream, at) if start and at is not None else None
        if frames is None:
            container.seek(0)
            frames = itertools.islice(container.decode(stream), start, None)
        convert = av.video.reformatter.VideoReformatter()
        result: Pixels | None = None
        n = -1
        for n, frame in enumerate(itertools.islice(frames, count)):
            if frame.is_corrupt or frame.width * frame.height > LARGEST:
                raise UserError(f"{path}: frame {start + n} is damaged")
            picture = resized(np.asarray(convert.reformat(frame, format="rgb24").to_ndarray(), np.uint8), size)
            if result is None:
                result = np.empty((count, *picture.shape), np.uint8)
            elif picture.shape != result.shape[1:]:
                raise UserError(f"{path}: frame {start + n} is of another size than the ones before")
            result[n] = picture
        if result is None or n < count - 1:
            raise UserError(f"{path} ends before frame {start + count - 1}, which was asked for")
    return torch.from_numpy(result).permute(0, 3, 1, 2).contiguous()


def _sought(container: Any, stream: Any, at: int) -> Iterator[Any] | None:
    """Frames from a time stamp on, by way of the key frame before it; None if the file does not lead there."""
    container.seek(at, stream=stream)
    frames = itertools.dropwhile(lambda frame: frame.pts is None or frame.pts < at, container.decode(stream))
    first = next(frames, None)
    return itertools.chain([first], frames) if first is not None and first.pts == at else None


def time_stamps(path: Path) -> list[int | None]:
    """When each frame is shown, in the stream's own unit and in order; None for all where the file does not say."""
    with _opened(path) as (container, stream):
        stamps = [packet.pts for packet in container.demux(stream) if packet.size]
    known = sorted(stamp for stamp in stamps if stamp is not None)
    return list(known) if len(set(known)) == len(stamps) else [None] * len(stamps)


def negatives(data: DataConfig) -> bool:
    """Whether a run learns on negatives, as footage may ask for."""
    return any(option.replace(" ", "").lower() == "negative=true" for option in data.options)


def read_image(path: Path) -> Pixels:
    """An image file as RGB [H,W,3]."""
    try:
        raw = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return decode_image(raw, str(path))


def decode_image(raw: Pixels, name: str) -> Pixels:
    """An encoded image as RGB [H,W,3]; `name` is what an error calls it."""
    if len(raw) == 0:
        raise UserError(f"{name} is empty")
    try:
        picture = cv2.imdecode(raw, cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise UserError(f"{name} is no image that can be read: {error.err}") from error
    if picture is None:
        raise UserError(f"{name} is no image that can be read")
    return np.ascontiguousarray(picture[..., ::-1], np.uint8)


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
    with _opened(path) as (container, stream):
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
