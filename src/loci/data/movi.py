"""MOVi (Kubric) as its TFDS records: a folder of `movi_a-train.tfrecord-00000-of-00256` and so on."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from loci.data.batch import gather
from loci.data.clip import EVENTS, OCCLUDED, VISIBLE, Clip
from loci.data.document import reading
from loci.data.example import Feature, parse_example
from loci.data.picture import LARGEST, Pixels, Size, pixel_to_position, resampled, resized
from loci.data.source import Split
from loci.data.tfrecord import RecordError, TfRecords
from loci.data.video import report
from loci.errors import UserError

log = logging.getLogger(__name__)

_WHAT = "a MOVi record"
_SPLITS: Mapping[Split, tuple[str, ...]] = {"train": ("train",), "val": ("validation",), "test": ("test", "validation")}
_FLOOR = 65535  # what collisions call everything that is no object
NAMES: Mapping[str, tuple[str, ...]] = {
    "shape": ("cube", "cylinder", "sphere", "cone", "torus", "gear", "torus_knot", "sponge", "spot", "teapot",
              "suzanne"),
    "size": ("small", "large"),
    "colour": ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow"),
    "material": ("metal", "rubber"),
    "category": ("Action Figures", "Bag", "Board Games", "Bottles and Cans and Cups", "Camera", "Car Seat",
                 "Consumer Goods", "Hat", "Headphones", "Keyboard", "Legos", "Media Cases", "Mouse", "None", "Shoe",
                 "Stuffed Toys", "Toys"),
}  # fmt: skip
_KEYS = {"shape": "shape_label", "size": "size_label", "colour": "color_label", "material": "material_label",
         "category": "category"}  # fmt: skip


class _Place(NamedTuple):
    """Where a clip lies: which file, which record."""

    file: int
    record: int


@dataclass(frozen=True)
class MoviVideos:
    """The clips of one split.

    Attributes:
        shards: the open files.
        places: where each clip lies.
        size: height and width that frames are brought to.
        length: frames in a clip: the first ones of each video.
        known: which attributes the records have.
        skipped: what could not be used, and why.
    """

    shards: tuple[TfRecords, ...]
    places: tuple[_Place, ...]
    size: Size
    length: int
    known: tuple[str, ...]
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """What the labels stand for; which there are depends on the variant, A to E."""
        return {name: NAMES[name] for name in self.known}

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        return gather(partial(self._read, labels=labels), indices, len(self), device)

    def _read(self, n: int, labels: bool) -> Clip:
        shard, record = self.shards[self.places[n].file], self.places[n].record
        data, place = shard[record], f"{shard.path}: record {record}"
        with reading(place, _WHAT):
            features = _features(data)
            stored = _size(features)
            pictures = _pictures(features["video"], stored, 3)
            if len(pictures) < self.length:
                raise ValueError(f"{self.length} frames expected, got {len(pictures)}")
        frames = np.stack([resized(picture, self.size) for picture in pictures[: self.length]])
        clip = Clip(torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()[None], index=torch.tensor([n]))
        if labels:
            with reading(place, _WHAT):
                clip = self._labelled(clip, features, stored)
        return clip

    def _labelled(self, clip: Clip, features: Mapping[str, Feature], stored: Size) -> Clip:
        segments = np.stack(_pictures(features["segmentations"], stored, 1))[: self.length, :, :, 0]
        T = len(_pictures_of(features["video"], stored, 3))
        where = features["instances/image_positions"].floats()
        N = len(where) // (2 * T)
        if N == 0 or len(where) != N * T * 2 or segments.max() > N or len(segments) != self.length:
            raise ValueError(f"positions of {segments.max()} objects in {T} frames expected, got {len(where)} numbers")
        where = _finite(where).reshape(N, T, 2).swapaxes(0, 1)[: self.length]
        # Coordinates are (x, y), and 0 and 1 are the frame's outer edges.
        position = [pixel_to_position(where[..., 1 - a] * stored[a] - 0.5, stored[a], self.size[a]) for a in (0, 1)]
        seen = features["instances/visibility"].ints().reshape(N, T).T[: self.length] > 0
        visible = np.asarray(resampled(segments, self.size))[:, None] == np.arange(1, N + 1)[:, None, None]
        world = None
        if "instances/positions" in features:
            values = _finite(features["instances/positions"].floats()).reshape(N, T, 3).swapaxes(0, 1)
            world = torch.from_numpy(np.ascontiguousarray(values[: self.length]))[None]
        return dataclasses.replace(
            clip,
            visible=torch.from_numpy(visible)[None],
            position=torch.from_numpy(np.stack(position, -1))[None],
            world=world,
            state=torch.from_numpy(np.where(seen, VISIBLE, OCCLUDED).astype(np.uint8))[None],
            container=torch.full((1, self.length, N), -1),
            events=torch.tensor(_collisions(features, N, self.length), dtype=torch.int64).reshape(1, -1, 5),
            attributes={name: _labels(features[f"instances/{_KEYS[name]}"], N, name) for name in self.known},
        )


def _features(data: bytes) -> dict[str, Feature]:
    """A record's features; between the parts of a name some writers put a dot, TFDS puts a slash."""
    return {name.replace(".", "/"): feature for name, feature in parse_example(data).items()}


def _finite(values: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(values).all():
        raise ValueError("finite numbers expected, got inf or nan")
    return values


def _labels(feature: Feature, N: int, name: str) -> torch.Tensor:
    values = feature.ints()
    if values.shape != (N,) or (values < 0).any() or (values >= len(NAMES[name])).any():
        raise ValueError(f"{N} labels of {name}, from 0 to {len(NAMES[name]) - 1}, expected, got {values.tolist()[:8]}")
    return torch.from_numpy(values)[None]


def _collisions(features: Mapping[str, Feature], N: int, length: int) -> list[list[int]]:
    """Once per frame and pair; the floor is nobody."""
    if "events/collisions/frame" not in features:
        return []
    frame = features["events/collisions/frame"].ints()
    pair = features["events/collisions/instances"].ints().reshape(len(frame), 2)
    both = (pair != _FLOOR).all(1) & (frame >= 0) & (frame < length)
    if ((pair[both] < 0) | (pair[both] >= N)).any():
        raise ValueError(f"a collision is of objects {pair[both].max(0).tolist()}, there are {N}")
    rows = np.unique(np.c_[frame, np.sort(pair, 1)][both], axis=0)
    return [[EVENTS.index("collision"), t, t, one, two] for t, one, two in rows.tolist()]


def _encoded(values: Sequence[bytes] | NDArray[np.uint8]) -> bool:
    return len(values) > 0 and bytes(values[0][:4]) in (b"\x89PNG", b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xe1")


def _size(features: Mapping[str, Feature]) -> Size:
    """Height and width of the frames: as said, or else of the first encoded frame, or else square."""
    if "metadata/height" in features and "metadata/width" in features:
        size = (int(features["metadata/height"].ints()[0]), int(features["metadata/width"].ints()[0]))
    else:
        values = features["video"].bytes_list()
        if not values:
            raise ValueError("a video without frames")
        if _encoded(values):
            picture = _decoded(values[0], None, 3)
            size = (picture.shape[0], picture.shape[1])
        else:
            side = round((len(values[0]) / 3) ** 0.5)
            size = (side, side)
    if min(size) < 1 or size[0] * size[1] > LARGEST:
        raise ValueError(f"frames of {size[0]}x{size[1]} pixels")
    return size


def _pictures_of(feature: Feature, size: Size, channels: int) -> list[bytes]:
    """One string of bytes for each frame, encoded or not."""
    values = feature.bytes_list()
    frame = size[0] * size[1] * channels
    if len(values) == 1 and not _encoded(values) and len(values[0]) > frame:  # all frames in one string
        return [values[0][n : n + frame] for n in range(0, len(values[0]), frame)]
    return values


def _pictures(feature: Feature, size: Size, channels: int) -> list[Pixels]:
    """The frames [H,W,channels], whether encoded or raw."""
    values = _pictures_of(feature, size, channels)
    if _encoded(values):
        return [_decoded(value, size, channels) for value in values]
    wrong = [len(value) for value in values if len(value) != size[0] * size[1] * channels]
    if wrong:
        raise ValueError(f"a frame of {size[0]}x{size[1]}x{channels} bytes expected, got {wrong[0]}")
    return [np.frombuffer(value, np.uint8).reshape(*size, channels) for value in values]


def _decoded(value: bytes, size: Size | None, channels: int) -> Pixels:
    if value[:4] == b"\x89PNG":
        width, height = (int.from_bytes(value[n : n + 4], "big") for n in (16, 20))
        if not 0 < width * height <= LARGEST:
            raise ValueError(f"a picture of {height}x{width} pixels")
    kind = cv2.IMREAD_COLOR if channels == 3 else cv2.IMREAD_UNCHANGED
    try:
        picture = cv2.imdecode(np.frombuffer(value, np.uint8), kind)
    except cv2.error as error:
        raise ValueError(f"a picture cannot be decoded: {error.err}") from error
    if picture is None or picture.dtype != np.uint8:
        raise ValueError("a picture cannot be decoded")
    pixels = np.asarray(picture[..., ::-1] if channels == 3 else np.atleast_3d(picture), np.uint8)
    if pixels.shape[2] != channels or (size is not None and pixels.shape[:2] != size):
        raise ValueError(f"a picture of {size} and {channels} channels expected, got {pixels.shape}")
    return np.ascontiguousarray(pixels)


def open_movi(
    folder: Path, *, split: Split = "test", size: Size | None = None, length: int | None = None
) -> MoviVideos:
    """Open a folder of MOVi's TFDS records.

    Args:
        folder: holds `*-train.tfrecord-*` and `*-validation.tfrecord-*`.
        split: "val" is MOVi's validation split; so is "test" where, as for MOVi-A and -B, there is no test split.
        size: what to bring frames to; by default their own.
        length: frames in a clip; by default all.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder")
    kind, files = next(
        ((kind, found) for kind in _SPLITS[split] if (found := sorted(folder.rglob(f"*-{kind}.tfrecord*")))), ("", [])
    )
    if not files:
        raise UserError(
            f"{folder} has no records of split {split!r}: files named *-{_SPLITS[split][0]}.tfrecord* expected"
        )
    if kind != _SPLITS[split][0]:
        log.warning("%s has no %s split: its %s split is used", folder, split, kind)
    shards: list[TfRecords] = []
    places: list[_Place] = []
    skipped: list[str] = []
    for file in files:
        try:
            shard = TfRecords(file)
        except UserError as error:
            skipped.append(str(error))
            continue
        try:
            whole = shard.count()
        except RecordError as error:
            skipped.append(str(error))
            whole = error.record
        places += [_Place(len(shards), record) for record in range(whole)]
        shards.append(shard)
    if not places:
        raise UserError(f"none of the records in {folder} can be read; first: {(skipped or ['there are none'])[0]}")
    report(folder, skipped)
    first = shards[places[0].file]
    with reading(f"{first.path}: record {places[0].record}", _WHAT):
        features = _features(first[places[0].record])
        size_ = _size(features)
        frames = len(_pictures_of(features["video"], size_, 3))
        known = tuple(name for name, key in _KEYS.items() if f"instances/{key}" in features)
    return MoviVideos(tuple(shards), tuple(places), size or size_, length or frames, known, skipped)
