"""JSON files that nobody vouches for: bounded in size, and any fault in them is named together with the file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loci.errors import UserError

LARGEST = 2**28  # bytes of JSON; CLEVRER's proposals, the largest we know, have some 2^23


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Whatever does not fit what we expect of a file becomes a UserError that names the file.

    The exceptions are those that indexing, unpacking and converting of parsed JSON can raise.
    """
    try:
        yield
    except UserError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        detail = f"no key {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path} is not {what} as it should be: {detail}") from error


def read_json(path: Path, what: str) -> Any:
    """The content of a JSON file, plain or gzip, whichever it is by its first bytes.

    Raises:
        UserError: the file is not there, too large, cut off or no JSON.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(path) as packed:
                raw = packed.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}; it should hold {what}") from error
    if len(raw) > LARGEST:
        raise UserError(f"{path} holds more than {LARGEST} bytes; {what} has fewer")
    with reading(path, f"JSON of {what}"):
        return json.loads(raw)


def find(folder: Path, stem: str) -> Path | None:
    """`stem.json` or `stem.json.gz` in a folder, if either is there."""
    return next((p for p in (folder / f"{stem}.json", folder / f"{stem}.json.gz") if p.is_file()), None)


def numbers(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Parsed JSON as finite numbers of this shape (-1: any length)."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" and array.size:
        raise ValueError(f"numbers expected, got {str(values)[:60]!r}")
    array = array.astype(np.float64)
    if array.ndim != len(shape) or any(want not in (-1, have) for want, have in zip(shape, array.shape, strict=True)):
        raise ValueError(f"numbers of shape {shape} expected, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("finite numbers expected, got inf or nan")
    return array


def whole_number(value: Any) -> int:
    """Parsed JSON as a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**62:
        raise ValueError(f"a whole number expected, got {str(value)[:60]!r}")
    return value


def choice(value: Any, words: Sequence[str]) -> int:
    """Which of these words parsed JSON is."""
    if value not in words:
        raise ValueError(f"one of {', '.join(words)} expected, got {str(value)[:60]!r}")
    return words.index(value)


def run_lengths(code: Any, size: tuple[int, int]) -> NDArray[np.bool_]:
    """A mask [H,W] from COCO's run lengths, compressed or as a list; its size has to be the one expected.

    Not by pycocotools, which trusts its input: runs that do not add up to the frame make it write beyond its memory.
    """
    if tuple(code["size"]) != size:
        raise ValueError(f"a mask of {size[0]}x{size[1]} expected, got {str(code['size'])[:60]}")
    counts = code["counts"]
    if isinstance(counts, str):
        runs = _uncompressed(counts.encode("ascii"))
    else:
        runs = np.array([whole_number(count) for count in counts], np.int64)
    # Each by itself too: a sum of enormous ones may wrap around to the right value.
    if ((runs < 0) | (runs > size[0] * size[1])).any() or runs.sum() != size[0] * size[1]:
        raise ValueError(f"a mask's runs do not add up to its {size[0]}x{size[1]} pixels")
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T


def _uncompressed(code: bytes) -> NDArray[np.int64]:
    """COCO's letters as run lengths: five bits each, least first; from the fourth run on, less the one before last."""
    letters = np.frombuffer(code, np.uint8).astype(np.int64) - 48
    if ((letters < 0) | (letters > 63)).any():
        raise ValueError("a mask's run lengths hold a letter that has no meaning there")
    ends = np.flatnonzero(letters & 32 == 0)
    if not len(letters) or len(letters) - 1 not in ends[-1:]:
        raise ValueError("a mask's run lengths end within a number")
    starts = np.concatenate(([0], ends[:-1] + 1))
    if (ends - starts).max() > 11:
        raise ValueError("a mask's run lengths hold a number beyond all frames")
    shift = 5 * (np.arange(len(letters)) - np.repeat(starts, ends - starts + 1))
    runs = np.add.reduceat((letters & 31) << shift, starts)
    negative = letters[ends] & 16 != 0
    runs[negative] -= np.int64(1) << (shift[ends][negative] + 5)
    runs[1::2], runs[2::2] = runs[1::2].cumsum(), runs[2::2].cumsum()
    return runs
