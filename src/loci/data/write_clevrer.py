"""CLEVRER's own layout, which a reader of the real data set reads unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loci.data.clip import Clip
from loci.data.source import Source, Split
from loci.data.write import write_json
from loci.data.write_labels import attribute, run_lengths, things
from loci.data.write_video import write_video
from loci.errors import UserError
from loci.worlds.clevrer import Clevrer

RATE = 25
RANGES: dict[Split, range] = {"train": range(10_000), "val": range(10_000, 15_000), "test": range(15_000, 20_000)}
"""The numbers of CLEVRER's videos."""

_ORDER: tuple[Split, ...] = ("train", "val", "train", "test")  # as the ranges' sizes have it


@dataclass(frozen=True)
class ClevrerFolder:
    """`video_00000-01000/video_00000.mp4`, `annotation_*/annotation_*.json`, `derender_proposals/proposal_*.json`.

    Attributes:
        root: The folder.
        split: Clips of one split only; None: all three, in the data set's proportions.
    """

    root: Path
    split: Split | None = None

    def place(self, number: int) -> tuple[Split, int]:
        """Spread evenly, so that any number of clips is divided so."""
        if self.split:
            split, index = self.split, number
        else:
            fours, rest = divmod(number, 4)
            split = _ORDER[rest]
            index = 2 * fours + rest // 2 if split == "train" else fours
        if index >= len(RANGES[split]):
            raise UserError(f"clip {number}: CLEVRER's numbering has room for {len(RANGES[split])} clips of {split}")
        return split, index

    def done(self, number: int) -> bool:
        """The annotation is written last."""
        return self._file(number, "annotation", "json").exists()

    def write(self, number: int, clip: Clip, source: Source) -> None:
        """Video, proposals, annotation."""
        if not isinstance(source, Clevrer):
            raise UserError(f"only the clevrer world can be written in CLEVRER's layout, not {type(source).__name__}")
        video = self._file(number, "video", "mp4")
        write_video(video, clip.frames[0], RATE)
        index = self._number(number)
        proposals = {"video_index": index, "video_name": video.name, "frames": _proposals(clip, source)}
        write_json(self.root / "derender_proposals" / f"proposal_{index:05d}.json", proposals)
        (annotation,) = source.annotations([self.place(number)[1]])
        names = {"scene_index": index, "video_filename": video.name}
        write_json(self._file(number, "annotation", "json"), {**names, **annotation})

    def finish(self, count: int, sources: Mapping[Split, Source]) -> None:
        """Nothing is left to do."""

    def _number(self, number: int) -> int:
        split, index = self.place(number)
        return RANGES[split][index]

    def _file(self, number: int, kind: str, ending: str) -> Path:
        index = self._number(number)
        thousand = index // 1000 * 1000
        return self.root / f"{kind}_{thousand:05d}-{thousand + 1000:05d}" / f"{kind}_{index:05d}.{ending}"


def _proposals(clip: Clip, source: Source) -> list[dict[str, Any]]:
    assert clip.visible is not None
    objects = [
        (
            {"color": attribute(clip, source, "colour", n), "material": attribute(clip, source, "material", n),
             "shape": attribute(clip, source, "shape", n)},
            run_lengths(clip.visible[0, :, n]),
        )
        for n in things(clip)
    ]  # fmt: skip
    return [
        {"frame_index": t, "objects": [{**what, "mask": codes[t]} for what, codes in objects if codes[t] is not None]}
        for t in range(clip.length)
    ]
