"""Clips as mp4, each with its labels in a JSON file that readers of YouTube-VIS understand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco
from torch import Tensor

from loci.data.clip import EVENTS, STATES, Clip
from loci.data.source import Source, Split
from loci.data.write import write_json
from loci.data.write_video import write_video

RATE = 25


@dataclass(frozen=True)
class LabelledFolder:
    """`videos/00000.mp4`, ... and `labels/00000.json`, ... of one split."""

    root: Path
    split: Split

    def place(self, number: int) -> tuple[Split, int]:
        """Clips are numbered as in the world."""
        return self.split, number

    def done(self, number: int) -> bool:
        """The labels are written last."""
        return self.labels_of(number).exists()

    def write(self, number: int, clip: Clip, source: Source) -> None:
        """Video, then labels."""
        name = f"videos/{number:05d}.mp4"
        write_video(self.root / name, clip.frames[0], RATE)
        write_json(self.labels_of(number), labels(clip, source, [f"{name}#{t}" for t in range(clip.length)]))

    def finish(self, count: int, sources: Mapping[Split, Source]) -> None:
        """Nothing is left to do."""

    def labels_of(self, number: int) -> Path:
        """The file of a clip's labels."""
        return self.root / "labels" / f"{number:05d}.json"


def run_lengths(masks: Tensor) -> list[dict[str, Any] | None]:
    """COCO's compressed run lengths of masks [M,H,W], None where a mask is empty."""
    ordered = np.asfortranarray(masks.permute(1, 2, 0).to("cpu").numpy().astype(np.uint8))
    seen = masks.flatten(1).any(1).tolist()
    return [
        {"size": list(code["size"]), "counts": code["counts"].decode()} if there else None
        for code, there in zip(coco.encode(ordered), seen, strict=True)
    ]


def attribute(clip: Clip, source: Source, name: str, thing: int) -> str | None:
    """An attribute of an object of the first clip in words, None for one that does not exist."""
    value = int(clip.attributes[name][0, thing])
    return source.names[name][value] if value >= 0 else None


def things(clip: Clip) -> list[int]:
    """The objects of the first clip that exist (the others pad the batch)."""
    count = 0 if clip.visible is None else clip.visible.shape[2]
    return [n for n in range(count) if any(int(value[0, n]) >= 0 for value in clip.attributes.values())]


def labels(clip: Clip, source: Source, file_names: list[str]) -> dict[str, Any]:
    """The labels of a batch of one as YouTube-VIS has them, with what `Clip` knows beyond that.

    Annotation n + 1 is object n. Beside `segmentations` (visible pixels), `bboxes` and `areas` it has `whole`,
    `positions` (row, column), `shares`, `states`, `containers` (the annotation that holds it, or null) and
    `attributes`; `#12` behind a video's name means its frame 12.
    """
    height, width = clip.frames.shape[-2:]
    main = next((name for name in ("class", "shape") if name in source.names), next(iter(source.names)))
    return {
        "videos": [
            {"id": 1, "width": width, "height": height, "length": clip.length, "file_names": file_names},
        ],
        "categories": [{"id": n + 1, "name": name} for n, name in enumerate(source.names[main])],
        "annotations": [_annotation(clip, source, thing, main) for thing in things(clip)],
        "events": _events(clip),
    }


def _annotation(clip: Clip, source: Source, thing: int, main: str) -> dict[str, Any]:
    assert clip.visible is not None
    visible = clip.visible[0, :, thing]
    codes = run_lengths(visible)
    result: dict[str, Any] = {
        "id": thing + 1,
        "video_id": 1,
        "category_id": int(clip.attributes[main][0, thing]) + 1,
        "iscrowd": 0,
        "width": visible.shape[-1],
        "height": visible.shape[-2],
        "segmentations": codes,
        "bboxes": [None if code is None else coco.toBbox(code).tolist() for code in codes],
        "areas": [None if code is None else int(coco.area(code)) for code in codes],
        "attributes": {name: attribute(clip, source, name, thing) for name in clip.attributes},
    }
    if clip.whole is not None:
        result["whole"] = run_lengths(clip.whole[0, :, thing])
    if clip.position is not None:
        result["positions"] = [[round(x, 5) for x in place] for place in clip.position[0, :, thing].tolist()]
    if clip.share is not None:
        result["shares"] = [round(x, 4) for x in clip.share[0, :, thing].tolist()]
    if clip.state is not None:
        result["states"] = [STATES[x] for x in clip.state[0, :, thing].tolist()]
    if clip.container is not None:
        result["containers"] = [None if x < 0 else x + 1 for x in clip.container[0, :, thing].tolist()]
    return result


def _events(clip: Clip) -> list[dict[str, Any]]:
    rows = [] if clip.events is None else clip.events[0].tolist()
    return [
        {"kind": EVENTS[kind], "first": first, "last": last, "object": one + 1, "other": None if two < 0 else two + 1}
        for kind, first, last, one, two in rows
        if kind >= 0
    ]
