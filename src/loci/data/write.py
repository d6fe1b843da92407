"""Folders of clips, written one clip at a time: each is whole or not there, so a second call goes on where one stopped.

How a folder is laid out is a `Layout`: see `write_cater`, `write_clevrer`, `write_moving_mnist` and `write_labels`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import torch

from loci.data.clip import Clip
from loci.data.source import Source, Split
from loci.errors import UserError

SETTINGS = "settings.json"
_PIXELS_AT_ONCE = 30_000_000  # masks of this many pixels per object are made together: some 600 MB with ten objects


class Layout(Protocol):
    """How clips lie in a folder; clips are numbered from 0 in the order they are written."""

    def place(self, number: int) -> tuple[Split, int]:
        """Which split of the world this clip comes from, and which clip of it it is."""
        ...

    def done(self, number: int) -> bool:
        """Whether it is there already."""
        ...

    def write(self, number: int, clip: Clip, source: Source) -> None:
        """Write a batch of one."""
        ...

    def finish(self, count: int, sources: Mapping[Split, Source]) -> None:
        """What can only be written when all clips are there."""
        ...


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Write to the path this gives; it takes the name asked for when the block ends well.

    The temporary name is always the same, so that what a killed run leaves behind is written over by the next.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    if part.is_dir():
        shutil.rmtree(part)
    yield part
    part.replace(path)


def write_json(path: Path, content: Any) -> None:
    """A JSON file, whole or not at all."""
    with whole(path) as part:
        part.write_text(json.dumps(content))


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Take a new folder for these settings, or go on in one that was made with the same.

    Raises:
        UserError: It holds something else.
    """
    asked: dict[str, Any] = json.loads(json.dumps(settings))
    path = folder / SETTINGS
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder to write to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}): give another folder") from error
    if path.exists():
        found = _settings(path)
        names = [name for name in {**found, **asked} if found.get(name) != asked.get(name)]
        if names:
            differences = "; ".join(f"{n}: there {found.get(n)!r}, asked for {asked.get(n)!r}" for n in names)
            raise UserError(
                f"{folder} was made with other settings ({differences}): ask for the same, or give another folder"
            )
        return
    if any(entry.name != f".{SETTINGS}.part" for entry in folder.iterdir()):
        raise UserError(f"{folder} holds files but no {SETTINGS}, so it was not made here: give a new or empty folder")
    write_json(path, asked)


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no JSON ({error}): give another folder") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no settings but {type(found).__name__}: give another folder")
    return found


def write_clips(
    layout: Layout,
    sources: Mapping[Split, Source],
    count: int,
    *,
    device: torch.device | str = "cpu",
    advance: Callable[[], object] = lambda: None,
) -> int:
    """Write the clips from 0 to `count` that are not there yet, and say how many those were."""
    missing = [number for number in range(count) if not layout.done(number)]
    for split, numbers in groupby(missing, key=lambda number: layout.place(number)[0]):
        source = sources[split]
        together = max(1, _PIXELS_AT_ONCE // (source.length * source.size[0] * source.size[1]))
        waiting = list(numbers)
        for first in range(0, len(waiting), together):
            some = waiting[first : first + together]
            clips = source.clips([layout.place(number)[1] for number in some], device=device).to("cpu")
            for entry, number in enumerate(some):
                layout.write(number, clips[entry : entry + 1], source)
                advance()
    layout.finish(count, sources)
    return len(missing)
