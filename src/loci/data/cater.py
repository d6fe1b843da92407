"""A CATER folder as published (videos, scenes, lists), or as `loci data make` writes it (with masks beside)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loci.data.batch import gather
from loci.data.cater_geometry import project, snitch_class
from loci.data.clip import CARRIED, CONTAINED, OCCLUDED, VISIBLE, Clip
from loci.data.document import find, read_json, reading
from loci.data.labels import read_labels
from loci.data.picture import Size, read_image, resized
from loci.data.source import Split
from loci.data.video import report
from loci.data.video_file import decode, probe
from loci.errors import UserError
from loci.worlds.cater import HIDDEN_BELOW, Cater
from loci.worlds.cater_scene import carried, events, from_json, holders
from loci.worlds.cater_script import Script

log = logging.getLogger(__name__)

Check = Literal["index", "decode"]

_WHAT = "a CATER scene"
_VIDEOS = frozenset({".avi", ".mp4"})
_TEST_SHARE, _VAL_SHARE = 0.3, 0.2  # 70:30 as published, and of the 70 another 80:20


class _Listed(NamedTuple):
    """A line of a list: the video's file name, and the class it gives, if it does."""

    video: str
    label: int | None


@dataclass(frozen=True)
class CaterVideos:
    """The clips of one split. Without masks beside them, all that is not contained counts as visible.

    Attributes:
        folder: where `videos` and `scenes` are.
        videos: file names in the order of the clips.
        size: height and width that frames are brought to.
        length: frames in a clip: the first ones of each video.
        background: [1,1,3,H,W], from `background.png`, or None where there is none.
        masked: whether `labels` holds masks.
        skipped: what could not be used, and why.
    """

    folder: Path
    videos: tuple[str, ...]
    size: Size
    length: int
    background: Tensor | None
    masked: bool
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The words of the world that plays by CATER's rules."""
        return Cater().names

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        return gather(partial(self._read, labels=labels), indices, len(self), device)

    def _read(self, n: int, labels: bool) -> Clip:
        path = self.folder / "videos" / self.videos[n]
        frames = decode(path, self.length, size=self.size)
        clip = Clip(frames[None], index=torch.tensor([n]))
        if labels:
            if self.masked:
                stem = self.folder / "labels" / f"{path.stem}.json"
                clip = read_labels(stem, frames, self._own_names(), probe(path).size, n)
            clip = self._labelled(clip, _script(self.folder, path.stem))
        return dataclasses.replace(clip, background=self.background)

    def _own_names(self) -> Mapping[str, tuple[str, ...]]:
        """The attributes that belong to objects; the snitch's class is found anew from where it ends."""
        return {name: words for name, words in self.names.items() if name != "snitch_class"}

    def _labelled(self, clip: Clip, script: Script) -> Clip:
        """Add what the scene says to what the masks say."""
        T, N = self.length, len(script.things)
        if clip.visible is not None and clip.visible.shape[2] != N:
            raise UserError(f"{self.videos[int(clip.index or 0)]}: the scene has {N} objects, its masks have others")
        held = holders(script)
        world = torch.from_numpy(script.places[:, :T].swapaxes(0, 1).copy())
        state = np.where(held >= 0, np.where(carried(script, held), CARRIED, CONTAINED), VISIBLE)[:T]
        state_ = torch.from_numpy(state.astype(np.uint8))[None]
        if clip.share is not None:
            state_[(state_ == VISIBLE) & (clip.share < HIDDEN_BELOW)] = OCCLUDED
        names = self.names
        attributes = {
            name: torch.tensor([[names[name].index(getattr(thing, name)) for thing in script.things]])
            for name in self._own_names()
        }
        where = [
            int(snitch_class(world[-1, n])) if thing.shape == "spl" else -1 for n, thing in enumerate(script.things)
        ]
        return dataclasses.replace(
            clip,
            position=project(world)[None].float(),
            world=world[None].float(),
            state=state_,
            container=torch.from_numpy(held[:T].copy())[None],
            events=torch.tensor(events(script, T), dtype=torch.int64).reshape(1, -1, 5),
            attributes={**attributes, "snitch_class": torch.tensor([where])},
        )


def _script(folder: Path, stem: str) -> Script:
    """The scene of a video, checked.

    Raises:
        UserError: it is missing, broken, or says what cannot be.
    """
    path = find(folder / "scenes", stem)
    if path is None:
        raise UserError(f"{folder / 'scenes' / stem}.json is missing")
    content = read_json(path, _WHAT)
    with reading(path, _WHAT):
        script = from_json(content)
        names = Cater().names
        for thing in script.things:
            for attribute in ("shape", "colour", "material", "size"):
                if getattr(thing, attribute) not in names[attribute]:
                    raise ValueError(f"{thing.instance} has {attribute} {getattr(thing, attribute)!r}")
        if script.places.ndim != 3 or script.places.shape[2] != 3 or not np.isfinite(script.places).all():
            raise ValueError("each object should have three finite coordinates in every frame")
        if sum(thing.shape == "spl" for thing in script.things) != 1:
            raise ValueError('there should be one snitch (shape "spl")')
        for moves in script.moves:
            for move in moves:
                if not 0 <= move.start <= move.end < 2**31 or move.kind[1:] not in _KINDS:
                    raise ValueError(f"no movement is {move.kind!r} from {move.start} to {move.end}")
    return script


_KINDS = frozenset({"slide", "pick_place", "rotate", "contain", "no_op"})


def open_cater(
    folder: Path,
    *,
    split: Split = "test",
    size: Size | None = None,
    length: int | None = None,
    check: Check = "index",
) -> CaterVideos:
    """Open a CATER folder, leaving out (and reporting) every video that cannot be used.

    Args:
        folder: holds `videos`, `scenes` and, if the official division is wanted, `lists/localize`.
        split: "test" is the official test set (`val.txt`); "train" and "val" are `train_subsetT.txt` and
            `train_subsetV.txt`. Without lists, videos are divided 56:14:30 by sorted name.
        size: what to bring frames to; by default the videos' own.
        length: frames in a clip; by default all of the first video's.
        check: "index" looks at each video's head and index, which finds files that are missing, cut off or no videos;
            "decode" decodes all of them, which finds every frame that the decoder refuses and takes its time.
    """
    if not (folder / "videos").is_dir():
        raise UserError(f"{folder} is no CATER folder: it has no folder `videos` (and needs `scenes`)")
    listed = _divided(folder, split)
    with ThreadPoolExecutor(8) as pool:
        facts = list(pool.map(lambda entry: _looked_at(folder, entry), listed))
    good = [(entry.video, fact) for entry, fact in zip(listed, facts, strict=True) if isinstance(fact, tuple)]
    skipped = [fact for fact in facts if isinstance(fact, str)]
    if good:
        size, length = size or good[0][1][0], length or good[0][1][1]
        skipped += [f"{name} has {n} frames, a clip {length}" for name, (_, n) in good if n < (length or 0)]
        names = [name for name, (_, frames) in good if frames >= (length or 0)]
        if check == "decode":
            with ThreadPoolExecutor() as pool:
                faults = list(pool.map(lambda name: _fault(folder / "videos" / name, length or 1), names))
            skipped += [fault for fault in faults if fault]
            names = [name for name, fault in zip(names, faults, strict=True) if not fault]
    if not good or not names or size is None or length is None:
        reason = f"; first: {skipped[0]}" if skipped else ""
        raise UserError(f"{folder} has no {split} video that can be used{reason}")
    report(folder, skipped)
    masked = all((folder / "labels" / f"{Path(name).stem}.json").is_file() for name in names)
    return CaterVideos(folder, tuple(names), size, length, _background(folder, size), masked, skipped)


def _fault(path: Path, length: int) -> str | None:
    try:
        decode(path, length, size=(1, 1))
    except UserError as error:
        return str(error)
    return None


def _looked_at(folder: Path, entry: _Listed) -> tuple[Size, int] | str:
    """A usable video's size and frames, or why it cannot be used."""
    path = folder / "videos" / entry.video
    if not path.is_file():
        return f"{path} is listed but not there"
    try:
        facts = probe(path)
        script = _script(folder, path.stem)
    except UserError as error:
        return str(error)
    snitch = next(n for n, thing in enumerate(script.things) if thing.shape == "spl")
    found = int(snitch_class(torch.from_numpy(script.places[snitch, -1])))
    if entry.label is not None and entry.label != found:
        return f"{path.name}: the list says class {entry.label}, the scene {found}"
    return facts.size, min(facts.frames, script.places.shape[1])


def _divided(folder: Path, split: Split) -> list[_Listed]:
    """Which videos belong to a split."""
    lists = folder / "lists" / "localize"
    if (lists / "val.txt").is_file() and (lists / "train.txt").is_file():
        if split == "test":
            return list(_lines(lists / "val.txt"))
        subset = lists / ("train_subsetT.txt" if split == "train" else "train_subsetV.txt")
        if subset.is_file():
            return list(_lines(subset))
        every = sorted(_lines(lists / "train.txt"))
    else:
        files = sorted(p.name for p in (folder / "videos").iterdir() if p.suffix.lower() in _VIDEOS)
        first = len(files) - round(_TEST_SHARE * len(files))
        if split == "test":
            return [_Listed(name, None) for name in files[first:]]
        every = [_Listed(name, None) for name in files[:first]]
    cut = len(every) - round(_VAL_SHARE * len(every))
    return every[:cut] if split == "train" else every[cut:]


def _lines(path: Path) -> Iterator[_Listed]:
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdecimal() or len(words[1]) > 4 or Path(words[0]).name != words[0]:
            raise UserError(f'{path}, line {number}: "<video file> <class>" expected, got {line[:80]!r}')
        yield _Listed(words[0], int(words[1]))


def _background(folder: Path, size: Size) -> Tensor | None:
    """The empty scene, if the folder has a picture of it."""
    path = folder / "background.png"
    if not path.is_file():
        return None
    return torch.from_numpy(resized(read_image(path), size)).permute(2, 0, 1)[None, None].contiguous()
