"""CLEVR with masks: still images with the mask of every object, from one TFRecord file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from loci.data.batch import gather
from loci.data.clip import ABSENT, OCCLUDED, VISIBLE, Clip
from loci.data.document import reading
from loci.data.example import Feature, parse_example
from loci.data.picture import Size, pixel_to_position, resampled, resized
from loci.data.source import SPLITS, Split
from loci.data.tfrecord import TfRecords
from loci.errors import UserError

OFFICIAL, OFFICIAL_COUNT = "clevr_with_masks_train.tfrecords", 100_000
_ATTRIBUTES = {"shape": "shape", "colour": "color", "material": "material", "size": "size"}
_WORDS = tuple(map(str, range(16)))  # what CLEVR's numbers mean is not published with them
# Of each ten records. The file has no split and no index: its end is far away, its beginning is not.
_PARTS: Mapping[Split, tuple[int, ...]] = {"train": (0, 1, 2, 3, 4, 5, 6), "val": (7,), "test": (8, 9)}


@dataclass(frozen=True)
class ClevrImages:
    """Images as clips of one frame (or that frame again and again). Objects are the records' entries 1 and up.

    Attributes:
        records: the open file.
        numbers: which records are in this split.
        size: height and width that images are brought to.
        length: how often each image is shown.
        skipped: nothing is: a file that is damaged cannot be read on.
    """

    records: TfRecords
    numbers: range | tuple[int, ...]
    size: Size
    length: int
    skipped: list[str] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """CLEVR's own numbers: shapes, colours and so on are told apart but not named."""
        return dict.fromkeys(_ATTRIBUTES, _WORDS)

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        return gather(partial(self._read, labels=labels), indices, len(self), device)

    def _read(self, n: int, labels: bool) -> Clip:
        number = self.numbers[n]
        data, place = self.records[number], f"{self.records.path}: record {number}"
        with reading(place, "CLEVR with masks"):
            features = parse_example(data)
            image = _image(features["image"])
        frame = torch.from_numpy(resized(image, self.size)).permute(2, 0, 1)
        clip = Clip(frame.expand(1, self.length, -1, -1, -1).contiguous(), index=torch.tensor([n]))
        if labels:
            with reading(place, "CLEVR with masks"):
                clip = self._labelled(clip, features, (image.shape[0], image.shape[1]))
        return clip

    def _labelled(self, clip: Clip, features: Mapping[str, Feature], stored: Size) -> Clip:
        there = _floats(features["visibility"], -1, 1)[:, 0] > 0
        N = len(there)
        masks = features["mask"].rows().reshape(-1)
        if len(masks) != N * stored[0] * stored[1]:
            raise ValueError(f"{N} masks of {stored[0]}x{stored[1]} expected, got {len(masks)} pixels")
        full = masks.reshape(N, *stored) > 127
        visible = np.asarray(resampled(full & there[:, None, None], self.size))[1:]
        pixel = _floats(features["pixel_coords"], N, 3)[1:]
        place = [pixel_to_position(pixel[:, 1 - a], stored[a], self.size[a]) for a in (0, 1)]
        world = np.concatenate([_floats(features[axis], N, 1) for axis in "xyz"], 1)[1:]
        there = there[1:]
        state = np.where(there, np.where(full[1:].any((1, 2)), VISIBLE, OCCLUDED), ABSENT).astype(np.uint8)

        def over_time(value: NDArray[np.generic]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(value)).expand(1, self.length, *value.shape).contiguous()

        return dataclasses.replace(
            clip,
            visible=over_time(visible),
            position=over_time(np.stack(place, -1)),
            world=over_time(world),
            state=over_time(state),
            container=torch.full((1, self.length, N - 1), -1),
            attributes={name: _attribute(features[key], there) for name, key in _ATTRIBUTES.items()},
        )


def _image(feature: Feature) -> NDArray[np.uint8]:
    """The image, however its bytes are grouped; its sides are as 3 to 4."""
    raw = feature.rows().reshape(-1)
    unit = round((len(raw) / 36) ** 0.5)
    if not unit or unit * unit * 36 != len(raw):
        raise ValueError(f"an RGB image of 240x320 or another one of 3 to 4 expected, got {len(raw)} bytes")
    return raw.reshape(3 * unit, 4 * unit, 3).copy()


def _floats(feature: Feature, rows: int, columns: int) -> NDArray[np.float32]:
    values = feature.floats()
    if len(values) == 0 or (rows > 0 and len(values) != rows * columns) or not np.isfinite(values).all():
        raise ValueError(f"{rows} times {columns} finite numbers expected, got {len(values)}")
    return values.reshape(-1, columns)


def _attribute(feature: Feature, there: NDArray[np.bool_]) -> torch.Tensor:
    """One number for each object, [1,N]; the first entry is the background's."""
    values = feature.rows().reshape(-1)[1:]
    if values.shape != there.shape or (values[there] >= len(_WORDS)).any():
        raise ValueError(f"attributes of {len(there)} objects, below {len(_WORDS)}, expected")
    return torch.from_numpy(np.where(there, values.astype(np.int64), -1))[None]


def open_clevr(
    path: Path, *, split: Split = "test", size: Size | None = None, length: int | None = None, limit: int | None = None
) -> ClevrImages:
    """Open CLEVR's file, `clevr_with_masks_train.tfrecords`, plain or gzip.

    Args:
        path: the file.
        split: of each ten records the first seven are "train", the next "val", the last two "test".
        size: what to bring images to; by default their own.
        length: how often each image is shown; once by default.
        limit: use only so many records from the file's beginning. Without it the file is read to its end to count them,
            but for the official file, which is taken to have its 100 000.
    """
    records = TfRecords(path)
    if limit is not None and limit < 1:
        raise UserError(f"limit {limit}: choose 1 record or more")
    count = limit or (OFFICIAL_COUNT if path.name == OFFICIAL else records.count())
    if split not in SPLITS:
        raise UserError(f"split {split!r}: choose one of {', '.join(SPLITS)}")
    chosen = tuple(n for n in range(count) if n % 10 in _PARTS[split])
    if not chosen:
        raise UserError(f"{path}: none of its first {count} records is in split {split!r}: choose another")
    if size is None:
        with reading(f"{path}: record {chosen[0]}", "CLEVR with masks"):
            image = _image(parse_example(records[chosen[0]])["image"])
        size = (image.shape[0], image.shape[1])
    return ClevrImages(records, chosen, size, length or 1)
