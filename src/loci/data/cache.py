"""Any source decoded once into a folder: compact, resumable, checked on reading.

A clip is one file, and each of its tensors a part with its own checksum, so frames can be read without labels. Frames
are stored as differences from the frame before, which zlib makes small where the camera is still, and masks as bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loci.data.batch import gather
from loci.data.clip import Clip
from loci.data.document import read_json, reading
from loci.data.source import Source
from loci.data.video import report
from loci.data.write import whole, write_json
from loci.errors import UserError

log = logging.getLogger(__name__)

_MAGIC = b"loci clip 1\n"
_LARGEST = 2**34  # bytes of one tensor, unpacked
_HEAD = 2**20  # bytes of a clip's table of contents
_DTYPES = {"uint8": torch.uint8, "bool": torch.bool, "int64": torch.int64, "float32": torch.float32}
_WITHOUT_LABELS = frozenset({"frames", "background", "index"})


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _pack(value: Tensor) -> bytes:
    array = value.contiguous().numpy()
    if array.dtype == np.bool_:
        return zlib.compress(np.packbits(array).tobytes(), 1)
    if array.dtype == np.uint8 and array.ndim == 5:  # [1,T,3,H,W]
        array = np.concatenate((array[:, :1], array[:, 1:] - array[:, :-1]), 1)  # modulo 256
    return zlib.compress(array.tobytes(), 1)


def _unpack(raw: bytes, dtype: str, shape: tuple[int, ...]) -> Tensor:
    kind, count = np.dtype(dtype), math.prod(shape)
    size = -(-count // 8) if kind == np.bool_ else count * kind.itemsize
    inflate = zlib.decompressobj()
    data = inflate.decompress(raw, size + 1)
    if len(data) != size:
        raise ValueError(f"{size} bytes expected")
    if kind == np.bool_:
        bits: NDArray[Any] = np.unpackbits(np.frombuffer(data, np.uint8), count=count)
        return torch.from_numpy(bits.astype(np.bool_).reshape(shape))
    array = np.frombuffer(data, kind).reshape(shape).copy()
    if kind == np.uint8 and array.ndim == 5:
        np.cumsum(array, axis=1, dtype=np.uint8, out=array)
    return torch.from_numpy(array)


def _tensors(clip: Clip) -> dict[str, Tensor]:
    """Everything a clip knows, attributes under names that begin with a dot."""
    known = {f.name: getattr(clip, f.name) for f in dataclasses.fields(clip) if f.name != "attributes"}
    return {n: v for n, v in known.items() if v is not None} | {f".{n}": v for n, v in clip.attributes.items()}


def _store(path: Path, clip: Clip) -> None:
    parts, contents, offset = [], {}, 0
    for name, value in _tensors(clip).items():
        raw = _pack(value)
        contents[name] = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                          "offset": offset, "bytes": len(raw), "digest": _digest(raw)}  # fmt: skip
        parts.append(raw)
        offset += len(raw)
    head = json.dumps(contents).encode()
    with whole(path) as part:
        part.write_bytes(b"".join([_MAGIC, f"{len(head):8d} {_digest(head)}\n".encode(), head, *parts]))


def _load(path: Path, labels: bool) -> Clip:
    """A stored clip, or a ValueError that says what is wrong with the file."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it is no stored clip")
        size, digest = file.readline(64).split()
        if int(size) > _HEAD:
            raise ValueError("its table of contents is too large")
        head = file.read(int(size))
        if _digest(head) != digest.decode():
            raise ValueError("its table of contents is damaged")
        start = file.tell()
        found: dict[str, Tensor] = {}
        for name, about in json.loads(head).items():
            if not labels and name not in _WITHOUT_LABELS:
                continue
            shape = tuple(map(int, about["shape"]))
            if about["dtype"] not in _DTYPES or any(n < 0 for n in shape) or math.prod(shape) * 8 > _LARGEST:
                raise ValueError(f"it has no {name} of a possible size")
            file.seek(start + int(about["offset"]))
            raw = file.read(min(int(about["bytes"]), path.stat().st_size))
            if _digest(raw) != about["digest"]:
                raise ValueError(f"its {name} are damaged")
            found[name] = _unpack(raw, about["dtype"], shape)
    attributes = {name[1:]: found.pop(name) for name in list(found) if name.startswith(".")}
    return Clip(**found, attributes=attributes)


@dataclass(frozen=True)
class CachedClips:
    """Clips from a cache; one that is not there yet, or turns out damaged, is made from its source.

    Attributes:
        folder: where the cache is.
        source: what it is made of.
        numbers: which clips of the source there are, counted anew from 0; their `index` stays that of the source.
        skipped: what could not be read, and why.
    """

    folder: Path
    source: Source
    numbers: Sequence[int]
    skipped: list[str] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self.source.size

    @property
    def length(self) -> int:
        """Frames in a clip."""
        return self.source.length

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """For each attribute, what its numbers mean."""
        return self.source.names

    def __len__(self) -> int:
        return len(self.numbers)

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        return gather(partial(self._read, labels=labels), indices, len(self), device)

    def _read(self, n: int, labels: bool) -> Clip:
        path = _place(self.folder, self.numbers[n])
        try:
            clip = _load(path, labels)
            if clip.frames.shape != (1, self.length, 3, *self.size):
                raise ValueError(f"its frames are {tuple(clip.frames.shape)}")
            return clip
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            log.warning("%s is damaged (%s) and made again", path, error)
        _store(path, self.source.clips([self.numbers[n]]))
        return _load(path, labels)


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number // 1000:06d}" / f"{number:09d}.clip"


def identity(source: Source) -> str:
    """What tells sources apart: their type and all they are made of, files by their names."""
    if not dataclasses.is_dataclass(source):
        return repr(source)
    parts = []
    for about in dataclasses.fields(source):
        value = getattr(source, about.name)
        if isinstance(value, Tensor):
            value = _digest(value.contiguous().cpu().numpy().tobytes())
        if about.name != "skipped":
            parts.append(f"{about.name}={value!r}")
    return f"{type(source).__name__}({', '.join(parts)})"


def cached(
    source: Source,
    folder: Path,
    *,
    count: int | None = None,
    advance: Callable[[], object] = lambda: None,
    workers: int = 4,
) -> CachedClips:
    """Decode a source into a folder, or go on where an earlier call stopped, and read from there.

    Clips that cannot be read are left out, reported, and tried again by the next call.

    Args:
        source: what to decode.
        folder: where to; a cache belongs to one source.
        count: how many clips, from the first; by default all.
        advance: called after each clip.
        workers: how many are decoded at once.

    Raises:
        UserError: the folder holds a cache of another source, or no clip can be read.
    """
    total = len(source) if count is None else min(count, len(source))
    if total >= 2**31:
        raise UserError("an endless source cannot be cached whole: say how many clips with count")
    _claim(source, folder)
    there = sum(_place(folder, number).exists() for number in range(total))
    log.info("%s: %d of %d clips are there, %d to decode", folder, there, total, total - there)

    def make(number: int) -> str | None:
        try:
            if not _place(folder, number).exists():
                _store(_place(folder, number), source.clips([number]))
        except UserError as error:
            return str(error)
        finally:
            advance()
        return None

    with ThreadPoolExecutor(workers) as pool:
        faults = list(pool.map(make, range(total)))
    skipped = [fault for fault in faults if fault]
    numbers = tuple(number for number, fault in enumerate(faults) if not fault)
    if not numbers:
        raise UserError(f"no clip could be cached in {folder}; first: {(skipped or ['there are none'])[0]}")
    report(folder, skipped)
    return CachedClips(folder, source, numbers, skipped)


def filling(source: Source, folder: Path) -> CachedClips:
    """Read from a folder what is in it, and put there what is not, clip by clip as they are asked for.

    All clips of the source are there under their own numbers; one that cannot be read is an error each time.

    Raises:
        UserError: the folder holds a cache of another source, or something else.
    """
    _claim(source, folder)
    return CachedClips(folder, source, range(len(source)))


def _claim(source: Source, folder: Path) -> None:
    """Make sure that the folder is this source's cache, or make it so."""
    made_of = _digest(identity(source).encode())
    about = folder / "cache.json"
    if about.exists():
        found = read_json(about, "a cache")
        with reading(about, "a cache"):
            same = found["source"] == made_of
        if not same:
            raise UserError(f"{folder} is the cache of another source or of other settings: give another folder")
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is no cache and not empty: give a new or empty folder")
    else:
        write_json(about, {"source": made_of, "made of": identity(source)[:2000]})
