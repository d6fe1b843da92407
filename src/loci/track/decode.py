"""Files and streams decoded by PyAV.

It carries its own FFmpeg, says what is wrong with a file, and can be told how large a picture may be before it
allocates one. What can be read of a damaged file is read; what could not be is said at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loci.data.pyav import pyav
from loci.errors import UserError
from loci.track.whole import cut_off, without_index

Pixels = NDArray[np.uint8]
Note = Callable[[str], None]

MAX_PIXELS = 2**26  # 8192 x 8192: a header that claims more is damaged, or an attack on the memory
MAX_SIDE = 2**14  # no camera and no common codec has longer ones
# Not video though FFmpeg would open them: text drawn on a terminal, scripts that pull in other files or addresses.
_REFUSED = frozenset(
    {"tty", "hls", "dash", "concat", "lavfi", "ffmetadata", "rtsp", "sdp", "bin", "xbin", "adf", "idf"}
)
ANYTHING = "mp4, avi, mov, webm, mkv, gif, a folder of images, camera:0 or - for a stream"


@dataclass(frozen=True)
class Opened:
    """A video before its first frame is read: pictures come with their time, or None."""

    name: str
    rate: float
    count: int | None
    live: bool
    pictures: Iterator[tuple[float | None, Pixels]]
    close: Callable[[], None]


def encoded(source: Any, name: str, rate: float | None, note: Note, live: bool) -> Opened:
    """A file or a stream that FFmpeg understands."""
    av = pyav()
    try:
        container = av.open(
            source if not isinstance(source, str) else f"file:{Path(source).resolve()}",
            # Decoders refuse a larger picture before they allocate it; nothing but files is opened.
            options={"max_pixels": str(MAX_PIXELS)},
            container_options={"protocol_whitelist": "file,pipe"} | ({"probesize": "65536"} if live else {}),
            metadata_errors="replace",
        )
    except (av.FFmpegError, ValueError, EOFError) as error:
        if isinstance(source, str) and not live and without_index(Path(source)):
            raise UserError(f"{name!r} was cut off before its index, without which no mp4 can be read") from error
        raise UserError(
            f"{name!r} is not a video, or is damaged from the start ({_reason(error)}): {ANYTHING}"
        ) from error
    try:
        stream = _video_stream(container, name)
        rate = rate or _sane_rate(stream)
        stream.thread_type = "SLICE" if live else "AUTO"  # threads that work on several frames delay each of them
        count = stream.frames or _count_from_duration(container, stream, rate)
    except BaseException:
        container.close()
        raise
    file = None if live or not isinstance(source, str) else Path(source)
    return Opened(name, rate, count, live, _pictures(container, stream, name, note, file), container.close)


def _video_stream(container: Any, name: str) -> Any:
    if container.format.name in _REFUSED:
        raise UserError(f"{name!r} is not a video but {container.format.long_name!r}: {ANYTHING}")
    if not container.streams.video:
        raise UserError(f"{name!r} has no pictures in it ({container.format.long_name}): {ANYTHING}")
    stream = container.streams.best("video") or container.streams.video[0]
    if stream.codec_context is None:
        raise UserError(f"{name!r} has pictures in a form that no decoder here knows; convert it to mp4 (H.264)")
    width, height = stream.codec_context.width, stream.codec_context.height
    if _absurd(width, height):
        most = f"{MAX_SIDE} on a side and {MAX_PIXELS} pixels in all"
        raise UserError(f"{name!r} claims pictures of {width} x {height}; {most} are the most: damaged?")
    return stream


def _pictures(
    container: Any, stream: Any, name: str, note: Note, file: Path | None
) -> Iterator[tuple[float | None, Pixels]]:
    """Decode what can be decoded, and say at the end what could not."""
    av = pyav()
    count, bad, first_bad, last, broken = 0, 0, 0, 0.0, ""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                break
        except (av.FFmpegError, ValueError) as error:
            broken = _reason(error)
            break
        try:
            pictures = [(frame.time, _rgb(frame)) for frame in packet.decode()]
        except (av.FFmpegError, ValueError):
            first_bad = first_bad if bad else count
            bad += 1
            continue
        for time, pixels in pictures:
            count += 1
            last = time if time is not None else last
            yield time, pixels
    if not count:
        return
    if bad:
        note(f"{name}: {bad} damaged pieces were left out, the first after frame {first_bad}")
    expected = stream.frames
    duration = (container.duration or 0) / 1e6  # in microseconds
    early = 1.05 * last + 1 < duration < 1e6
    short = count < expected - 2 if expected else early
    if broken or short or (file is not None and cut_off(file)):
        told = f" ({last:.1f} s of {duration:.1f} s)" if early else ""
        promised = f" of {expected}" if count < expected else told
        note(f"{name}: ended at frame {count}{promised}: cut off or damaged{f' ({broken})' if broken else ''}")


def _absurd(width: int, height: int) -> bool:
    return max(width, height) > MAX_SIDE or width * height > MAX_PIXELS


def _rgb(frame: Any) -> Pixels:
    """RGB, the way up it is to be shown (telephones write how they were held)."""
    if _absurd(frame.width, frame.height):
        raise ValueError("too large")
    pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    turns = round((frame.rotation or 0) / 90) % 4
    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def _sane_rate(stream: Any) -> float:
    rates = (float(rate) for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate) if rate)
    return next((rate for rate in rates if 0.01 <= rate <= 1000), 25.0)


def _count_from_duration(container: Any, stream: Any, rate: float) -> int | None:
    seconds = (container.duration or 0) / 1e6
    return round(seconds * rate) if 0 < seconds < 1e6 else None


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip()
