"""Masks as COCO run lengths in the layout of YouTube-VIS, in constant memory.

The layout wants all frames of one object together, while the tracker gives all objects of one frame: each object's run
lengths wait in a file of their own until the video ends.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from pycocotools import mask as coco

from loci.track.atomic import atomic
from loci.track.tracker import Tracked
from loci.track.write_tables import Write

NOTHING = (None, None, None)


@contextmanager
def masks_json(path: Path, name: str) -> Iterator[Write]:
    """Write `videos`, `categories` and one annotation for each id; null where it is hidden or not found yet.

    Args:
        path: the file.
        name: what the video is called.
    """
    with atomic(path) as part, tempfile.TemporaryDirectory(prefix=".masks-", dir=path.parent) as folder:
        waiting = Path(folder)
        written: dict[int, int] = {}  # for each id, how many frames its file holds
        length, size = 0, (0, 0)

        def write(frame: Tracked) -> None:
            nonlocal length, size
            size = frame.pixels.shape[:2]  # type: ignore[assignment]
            for n in range(len(frame.ids)):
                known = int(frame.ids[n])
                with (waiting / str(known)).open("a", encoding="ascii") as file:
                    _pad(file, length - written.get(known, 0))
                    entry = _entry(frame.labels == frame.slots[n] + 1, frame.boxes[n]) if frame.seen[n] else NOTHING
                    file.write(json.dumps(entry) + "\n")
                written[known] = length + 1
            length += 1

        yield write
        for known, count in written.items():
            with (waiting / str(known)).open("a", encoding="ascii") as file:
                _pad(file, length - count)
        with part.open("w", encoding="ascii") as file:
            _assemble(file, name, length, size, {known: waiting / str(known) for known in sorted(written)})


def _pad(file: TextIO, frames: int) -> None:
    for _ in range(frames):
        file.write(json.dumps(NOTHING) + "\n")


def _entry(mask: np.ndarray, box: np.ndarray) -> tuple[Any, Any, Any]:
    """Run lengths, box and area of one mask."""
    code = coco.encode(np.asfortranarray(mask, dtype=np.uint8))
    size = [int(side) for side in code["size"]]
    runs = {"size": size, "counts": code["counts"].decode("ascii")}
    return runs, [float(side) for side in box], int(mask.sum())


def _assemble(file: TextIO, name: str, length: int, size: tuple[int, int], parts: dict[int, Path]) -> None:
    """The whole document, never more than one line of it in memory."""
    height, width = size
    video = {"id": 1, "name": name, "width": width, "height": height, "length": length}
    file.write(f'{{"info":{json.dumps({"description": name, "made_by": "loci"})},"licenses":[],\n')
    file.write(f'"videos":[{json.dumps(video)[:-1]},"file_names":[')
    _listed(file, (json.dumps(f"{frame:06d}") for frame in range(length)))
    file.write(']}],\n"categories":[{"id":1,"name":"object","supercategory":"object"}],\n"annotations":[')
    for index, (known, part) in enumerate(parts.items()):
        facts = {"id": known, "video_id": 1, "category_id": 1, "iscrowd": 0, "width": width, "height": height}
        file.write(("," if index else "") + "\n" + json.dumps(facts)[:-1])
        for place, field in enumerate(("segmentations", "bboxes", "areas")):
            file.write(f',"{field}":[')
            with part.open(encoding="ascii") as lines:
                _listed(file, (json.dumps(json.loads(line)[place]) for line in lines))
            file.write("]")
        file.write("}")
    file.write("]}\n")


def _listed(file: TextIO, items: Iterator[str]) -> None:
    for index, item in enumerate(items):
        file.write(("," if index else "") + item)
