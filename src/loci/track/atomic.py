"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loci.errors import UserError


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; it takes the name of `path` once all went well, and goes if it did not."""
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def writable_folder(folder: Path) -> Path:
    """The folder, made if need be; an error now rather than after an hour of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {str(folder)!r}: {error.strerror}; choose another --out") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to the folder {str(folder)!r}: no permission; choose another --out")
    return folder
