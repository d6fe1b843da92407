"""Whether a file ends before its own structure does: what FFmpeg reads up to the end without a word.

Where a header says how many frames or seconds there are, that is counted (`decode.py`). A recording in fragments, a GIF
and the last twentieth of a Matroska file tell by their structure only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_MOST = 100_000  # boxes; a film of a day in fragments of a second has fewer


def cut_off(path: Path) -> bool:
    """Whether an mp4, mov, mkv, webm or gif lacks its end; other formats are not looked into."""
    with path.open("rb") as file:
        head = file.read(8)
        if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
            return any(end > size for _, end, size in _boxes(file))
        if head[:4] == b"\x1aE\xdf\xa3":
            return _segment_end(file) > path.stat().st_size
        if head[:4] == b"GIF8":
            file.seek(max(0, path.stat().st_size - 64))
            return b"\x3b" not in file.read()[-2:]  # the last byte, or the one before a filler
    return False


def without_index(path: Path) -> bool:
    """Whether an mp4 or mov has pictures and no index, as a recording that broke off."""
    with path.open("rb") as file:
        kinds = [kind for kind, _, _ in _boxes(file)]
    return kinds[:1] == [b"ftyp"] and b"moov" not in kinds


def _boxes(file: BinaryIO) -> Iterator[tuple[bytes, int, int]]:
    """The kind and the end of each of an mp4's outermost boxes, and the size of the file."""
    size, start = file.seek(0, 2), 0
    for _ in range(_MOST):
        if start >= size:
            return
        file.seek(start)
        head = file.read(16)
        if len(head) < 8:
            return
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8:  # 0 is "up to the end"; less cannot be
            yield head[4:8], size, size
            return
        yield head[4:8], start + length, size
        start += length


def _segment_end(file: BinaryIO) -> int:
    """Where a Matroska file's one segment says that it ends; 0 if it does not say."""
    file.seek(4)
    length = _number(file)
    if length is None:
        return 0
    file.seek(length, 1)
    if file.read(4) != b"\x18\x53\x80\x67":
        return 0
    length = _number(file)
    return 0 if length is None else file.tell() + length


def _number(file: BinaryIO) -> int | None:
    """A number of variable length; None for "unknown"."""
    first = file.read(1)
    if not first or first[0] == 0:
        return None
    more = 8 - first[0].bit_length()
    bits = 7 * (more + 1)
    value = int.from_bytes(first + file.read(more), "big") & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value
