"""Videos with labels beside them, as `loci data make` writes them for a world without a real data set to follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from loci.data.batch import gather
from loci.data.clip import Clip
from loci.data.document import read_json, reading
from loci.data.labels import read_labels
from loci.data.picture import Size
from loci.data.source import SPLITS, Source
from loci.data.video import report
from loci.data.video_file import decode, probe
from loci.data.write import SETTINGS
from loci.errors import UserError
from loci.worlds.open import WORLDS, world_class


@dataclass(frozen=True)
class LabelledVideos:
    """Videos `videos/00000.mp4` with labels `labels/00000.json`.

    Attributes:
        folder: where they are.
        stems: the videos' names, without endings, in the order of the clips.
        size: height and width that frames are brought to.
        length: frames in a clip: the first ones of each video.
        words: what the attributes' numbers mean, as the world had it.
        skipped: what could not be used, and why.
    """

    folder: Path
    stems: tuple[str, ...]
    size: Size
    length: int
    words: Mapping[str, tuple[str, ...]]
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.stems)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """What the attributes' numbers mean."""
        return self.words

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        return gather(partial(self._read, labels=labels), indices, len(self), device)

    def _read(self, n: int, labels: bool) -> Clip:
        video = self.folder / "videos" / f"{self.stems[n]}.mp4"
        frames = decode(video, self.length, size=self.size)
        if not labels:
            return Clip(frames[None], index=torch.tensor([n]))
        return read_labels(self.folder / "labels" / f"{self.stems[n]}.json", frames, self.words, probe(video).size, n)


def is_labelled(folder: Path) -> bool:
    """Whether a folder has this layout."""
    return all((folder / name).exists() for name in ("videos", "labels", SETTINGS))


def open_labelled(folder: Path, *, size: Size | None = None, length: int | None = None) -> LabelledVideos:
    """Open a folder of videos with labels.

    Args:
        folder: holds `videos`, `labels` and the settings it was made with.
        size: what to bring frames to; by default their own.
        length: frames in a clip; by default all of the first video's.
    """
    settings = read_json(folder / SETTINGS, "the settings of a folder made by loci data make")
    with reading(folder / SETTINGS, "the settings of a folder made by loci data make"):
        words = _world(settings).names
    stems: list[str] = []
    skipped: list[str] = []
    for path in sorted((folder / "labels").glob("*.json")):
        video = folder / "videos" / f"{path.stem}.mp4"
        try:
            facts = probe(video)
        except UserError as error:
            skipped.append(str(error))
            continue
        size, length = size or facts.size, length or facts.frames
        if facts.frames < length:
            skipped.append(f"{video} has {facts.frames} frames, a clip {length}")
        else:
            stems.append(path.stem)
    if not stems or size is None or length is None:
        raise UserError(
            f"{folder} has no video with labels that can be used{f'; first: {skipped[0]}' if skipped else ''}"
        )
    report(folder, skipped)
    return LabelledVideos(folder, tuple(stems), size, length, words, skipped)


def _world(settings: Any) -> Source:
    """The world that a folder's settings describe."""
    if settings["world"] not in WORLDS:
        raise ValueError(f"one of {', '.join(WORLDS)} expected, got {str(settings['world'])[:60]!r}")
    kind = world_class(settings["world"])
    known = {about.name for about in dataclasses.fields(kind)}
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items() if name in known}
    if options.get("split") not in SPLITS:
        options.pop("split", None)
    world: Source = kind(**options)
    return world
