"""CATER's own layout, which a reader of the real data set reads unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from loci.data.cater_geometry import snitch_class
from loci.data.clip import Clip
from loci.data.source import Source, Split
from loci.data.write import whole, write_json
from loci.data.write_labels import labels
from loci.data.write_video import write_video
from loci.errors import UserError
from loci.worlds.cater import Cater

RATE = 24
_TEST = (2, 5, 8)  # of every ten clips: CATER is divided 70:30
_LISTS = {"train": ("train", "train_subsetT"), "val": ("train", "train_subsetV"), "test": ("val",)}


@dataclass(frozen=True)
class CaterFolder:
    """`videos/CATER_new_000000.avi`, `scenes/*.json`, `lists/localize/*.txt`; and our masks in `labels/*.json`.

    Attributes:
        root: The folder.
        split: Clips of one split only; None: 30 of 100 are of the world's test split (CATER's "val"), and a fifth of
            the rest of its val split ("train_subsetV").
    """

    root: Path
    split: Split | None = None

    def place(self, number: int) -> tuple[Split, int]:
        """Spread evenly, so that any number of clips is divided so."""
        if self.split:
            return self.split, number
        tens, unit = divmod(number, 10)
        if unit in _TEST:
            return "test", 3 * tens + _TEST.index(unit)
        fives, rest = divmod(7 * tens + unit - sum(unit > other for other in _TEST), 5)
        return ("val", fives) if rest == 4 else ("train", 4 * fives + rest)

    def done(self, number: int) -> bool:
        """The scene is written last."""
        return self._scene(number).exists()

    def write(self, number: int, clip: Clip, source: Source) -> None:
        """Video, masks, scene."""
        if not isinstance(source, Cater):
            raise UserError(f"only the cater world can be written in CATER's layout, not {type(source).__name__}")
        name = f"{self._name(number)}.avi"
        write_video(self.root / "videos" / name, clip.frames[0], RATE, "mjpeg")
        files = [f"videos/{name}#{t}" for t in range(clip.length)]
        write_json(self.root / "labels" / f"{self._name(number)}.json", labels(clip, source, files))
        (scene,) = source.scenes([self.place(number)[1]])
        write_json(self._scene(number), {**scene, "image_filename": name, "image_index": number})

    def finish(self, count: int, sources: Mapping[Split, Source]) -> None:
        """The lists of videos with the cell where the snitch ends; also of clips beyond `count` made before."""
        while self.done(count):
            count += 1
        lines: dict[str, list[str]] = {name: [] for names in _LISTS.values() for name in names}
        for number in range(count):
            for name in _LISTS[self.place(number)[0]]:
                lines[name].append(f"{self._name(number)}.avi {self._class(number)}\n")
        for name, content in lines.items():
            with whole(self.root / "lists" / "localize" / f"{name}.txt") as part:
                part.write_text("".join(content))

    def _class(self, number: int) -> int:
        things = json.loads(self._scene(number).read_text())["objects"]
        places = next(thing["locations"] for thing in things if thing["shape"] == "spl")
        last = places[max(places, key=int)]
        return int(snitch_class(torch.tensor(last, dtype=torch.float64)))

    def _name(self, number: int) -> str:
        return f"CATER_new_{number:06d}"

    def _scene(self, number: int) -> Path:
        return self.root / "scenes" / f"{self._name(number)}.json"
