"""Video files of known length, read whole or in windows.

`loci.track.decode` is the decoder for whatever a person points a camera at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loci.data.picture import LARGEST, Pixels, Size, resized
from loci.data.pyav import pyav
from loci.errors import UserError

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
LONGEST = 100_000
"""Frames at once."""


class Facts(NamedTuple):
    """What a file says of itself: frames, height and width."""

    frames: int
    size: Size


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """A video's container and its stream of pictures; raises UserError where it cannot be read."""
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
    with opened(path) as (container, stream):
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
    with opened(path) as (container, stream):
        if stream.codec_context.name == "mjpeg":
            # Without this a damaged picture is patched up and passes for a whole one.
            stream.codec_context.options = {"err_detect": "explode"}
        frames = sought(container, stream, at) if start and at is not None else None
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


def sought(container: Any, stream: Any, at: int) -> Iterator[Any] | None:
    """Frames from a time stamp on, by way of the key frame before it; None if the file does not lead there."""
    container.seek(at, stream=stream)
    frames = itertools.dropwhile(lambda frame: frame.pts is None or frame.pts < at, container.decode(stream))
    first = next(frames, None)
    return itertools.chain([first], frames) if first is not None and first.pts == at else None


def time_stamps(path: Path) -> list[int | None]:
    """When each frame is shown, in the stream's own unit and in order; None for all where the file does not say."""
    with opened(path) as (container, stream):
        stamps = [packet.pts for packet in container.demux(stream) if packet.size]
    known = sorted(stamp for stamp in stamps if stamp is not None)
    return list(known) if len(set(known)) == len(stamps) else [None] * len(stamps)
