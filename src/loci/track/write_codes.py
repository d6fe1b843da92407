"""What and where of every slot in every frame, as arrays; in constant memory."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np
from numpy.lib import format as npy

from loci.track.atomic import atomic
from loci.track.tracker import Tracked
from loci.track.write_tables import Write


@contextmanager
def codes_npz(path: Path, slots: int, gestalt: int) -> Iterator[Write]:
    """Arrays over [T] frames and [T,K] slots; where a slot has no object yet, `id` is 0 and the rest NaN.

    `frame` [T], `time` [T], `id` [T,K], `position` [T,K,3] (row, column, sigma in the network's coordinates),
    `priority` [T,K], `gestalt` [T,K,D], `pixel` [T,K,2] (row and column in the video), `visible` [T,K].

    Args:
        path: the file.
        slots: K, how many the network has.
        gestalt: D, the size of the code of what an object is.
    """
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "frame": (np.int64, ()),
        "time": (np.float64, ()),
        "id": (np.int64, (slots,)),
        "position": (np.float32, (slots, 3)),
        "priority": (np.float32, (slots,)),
        "gestalt": (np.float32, (slots, gestalt)),
        "pixel": (np.float32, (slots, 2)),
        "visible": (np.float32, (slots,)),
    }
    with atomic(path) as part, ExitStack() as stack:
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=path.parent)) for name in shapes}
        length = 0

        def write(frame: Tracked) -> None:
            nonlocal length
            known = {
                "frame": frame.index,
                "time": frame.time,
                "id": frame.ids,
                "position": frame.codes[:, :3],
                "priority": frame.codes[:, 3],
                "gestalt": frame.gestalts,
                "pixel": frame.positions,
                "visible": frame.visible,
            }
            for name, (kind, shape) in shapes.items():
                row: np.ndarray = np.full(shape, np.nan if kind is np.float32 else 0, kind)
                row[frame.slots if shape else ...] = known[name]
                files[name].write(row.tobytes())
            length += 1

        yield write
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
            for name, (kind, shape) in shapes.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    _copy(files[name], entry, np.dtype(kind), (length, *shape))


def _copy(source: BinaryIO, target: IO[bytes], kind: np.dtype, shape: tuple[int, ...]) -> None:
    """An array's header and its bytes."""
    header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(target, header)
    source.seek(0)
    shutil.copyfileobj(source, target)
