"""A CLEVRER folder as published: videos, annotations and, where they are, the proposals' masks."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from loci.data.batch import gather
from loci.data.clip import ABSENT, EVENTS, OCCLUDED, VISIBLE, Clip
from loci.data.document import choice, numbers, read_json, reading, run_lengths, whole_number
from loci.data.picture import Size, resampled
from loci.data.source import Split
from loci.data.video import report
from loci.data.video_file import Facts, decode, probe
from loci.data.write_clevrer import RANGES
from loci.errors import UserError
from loci.worlds.clevrer import Clevrer
from loci.worlds.scene import CATER_CAMERA

log = logging.getLogger(__name__)

Check = Literal["index", "decode"]

BROKEN = frozenset({10800})  # its published annotation does not fit its video
_KEYS = {"shape": "shape", "material": "material", "colour": "color"}  # our words for attributes, and CLEVRER's
_TRUSTED = 0.1  # how far, in [-1,1], the camera's word may be from the masks' centres (median) before we doubt it


class _Files(NamedTuple):
    """All there is of one video."""

    video: Path
    annotation: Path | None
    proposal: Path | None


@dataclass(frozen=True)
class ClevrerVideos:
    """The clips of one split.

    Objects outside the camera's view are ABSENT. Masks are the proposals', so they may err; where there are none,
    everything in view counts as visible. Positions come with the masks only: CLEVRER does not publish its camera, so
    CLEVR's is used where it agrees with the masks, and otherwise the masks' centres (NaN where nothing is seen).

    Attributes:
        files: what belongs to each clip.
        size: height and width that frames are brought to.
        length: frames in a clip: the first ones of each video.
        annotated: whether there are annotations (there are none of the test split as published).
        masked: whether there are proposals for all of the videos.
        skipped: what could not be used, and why.
    """

    files: tuple[_Files, ...]
    size: Size
    length: int
    annotated: bool
    masked: bool
    skipped: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The words of the world that plays by CLEVRER's rules."""
        return Clevrer().names

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        return gather(partial(self._read, labels=labels and self.annotated), indices, len(self), device)

    def _read(self, n: int, labels: bool) -> Clip:
        files = self.files[n]
        frames = decode(files.video, self.length, size=self.size)
        clip = Clip(frames[None], index=torch.tensor([n]))
        if not labels or files.annotation is None:
            return clip
        content = read_json(files.annotation, "a CLEVRER annotation")
        with reading(files.annotation, "a CLEVRER annotation"):
            clip, looks = self._annotated(clip, content)
        if not self.masked or files.proposal is None:
            return clip
        content = read_json(files.proposal, "CLEVRER's proposals")
        with reading(files.proposal, "CLEVRER's proposals"):
            visible = self._masks(content, looks, probe(files.video).size)
        return _with_masks(clip, visible)

    def _annotated(self, clip: Clip, content: Any) -> tuple[Clip, list[tuple[str, ...]]]:
        """Add an annotation to a clip; and what each object looks like."""
        names, T = self.names, self.length
        things = content["object_property"]
        place = {whole_number(thing["object_id"]): n for n, thing in enumerate(things)}
        N = len(things)
        if not N or len(place) != N:
            raise ValueError("objects should have a number each")
        attributes = {
            name: torch.tensor([[choice(thing[key], names[name]) for thing in things]]) for name, key in _KEYS.items()
        }
        world, inside = np.zeros((T, N, 3)), np.zeros((T, N), np.bool_)
        told: set[int] = set()
        for frame in content["motion_trajectory"]:
            t = whole_number(frame["frame_id"])
            if not 0 <= t < T:
                continue
            told.add(t)
            for thing in frame["objects"]:
                n = place[whole_number(thing["object_id"])]
                world[t, n] = numbers(thing["location"], (3,))
                inside[t, n] = thing["inside_camera_view"] is True
        if len(told) != T:
            raise ValueError(f"the motion of {T} frames expected, got {len(told)}")
        events = _crossings(inside)
        for meeting in content["collision"]:
            t = whole_number(meeting["frame_id"])
            one, two = (place[whole_number(number)] for number in meeting["object_ids"])
            if 0 <= t < T:
                events.append((EVENTS.index("collision"), t, t, one, two))
        clip = dataclasses.replace(
            clip,
            world=torch.from_numpy(world)[None].float(),
            state=torch.from_numpy(np.where(inside, VISIBLE, ABSENT).astype(np.uint8))[None],
            container=torch.full((1, T, N), -1),
            events=torch.tensor(sorted(events, key=lambda event: event[1:]), dtype=torch.int64).reshape(1, -1, 5),
            attributes=attributes,
        )
        looks = [tuple(thing[key] for key in _KEYS.values()) for thing in things]
        return clip, looks

    def _masks(self, content: Any, looks: list[tuple[str, ...]], stored: Size) -> NDArray[np.bool_]:
        """The proposals' masks of the annotated objects, [T,N,H,W], told apart by what they look like.

        Proposals that look like no object are mistakes of CLEVRER's detector and are left out; of several for one
        object the largest counts; a pixel claimed twice goes to the first object.
        """
        if len(set(looks)) != len(looks):
            raise ValueError("two objects look alike, so their masks cannot be told apart")
        result = np.zeros((self.length, len(looks), *self.size), np.bool_)
        for frame in content["frames"]:
            t = whole_number(frame["frame_index"])
            if not 0 <= t < self.length:
                continue
            found: dict[int, NDArray[np.bool_]] = {}
            for thing in frame["objects"]:
                look = tuple(thing[key] for key in _KEYS.values())
                mask = run_lengths(thing["mask"], stored)
                n = looks.index(look) if look in looks else -1
                if n >= 0 and (n not in found or mask.sum() > found[n].sum()):
                    found[n] = mask
            taken = np.zeros(stored, np.bool_)
            for n, mask in sorted(found.items()):
                result[t, n] = resampled(mask & ~taken, self.size)
                taken |= mask
        return result


def _crossings(inside: NDArray[np.bool_]) -> list[tuple[int, int, int, int, int]]:
    """Events "enter" and "leave": the frames in which objects come into view, and in which they are gone."""
    change = np.diff(inside.astype(np.int8), axis=0)
    rows = []
    for kind, sign in (("enter", 1), ("leave", -1)):
        for t, n in np.argwhere(change == sign).tolist():
            rows.append((EVENTS.index(kind), t + 1, t + 1, n, -1))
    return rows


def _with_masks(clip: Clip, visible: NDArray[np.bool_]) -> Clip:
    """Add masks, what they say of who is hidden, and positions."""
    assert clip.state is not None
    assert clip.world is not None
    pixels = torch.from_numpy(visible.sum((-2, -1)))[None]
    state = torch.where((clip.state == VISIBLE) & (pixels == 0), OCCLUDED, clip.state)
    H, W = visible.shape[-2:]
    centres = torch.from_numpy(_centres(visible))[None]
    camera = CATER_CAMERA.seen_in((H, W)).project(clip.world)
    camera = camera * camera.new_tensor([H / (H - 1), W / (W - 1)])
    apart = (camera - centres).norm(dim=-1)[pixels > 0]
    trusted = len(apart) > 0 and float(apart.median()) < _TRUSTED
    return dataclasses.replace(
        clip, visible=torch.from_numpy(visible)[None], state=state, position=camera if trusted else centres
    )


def _centres(masks: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The mean position [...,2] of the pixels of each mask [...,H,W], NaN where there are none."""
    H, W = masks.shape[-2:]
    total = masks.sum((-2, -1), dtype=np.float64)
    axes = (masks.sum(-1) @ np.linspace(-1, 1, H), masks.sum(-2) @ np.linspace(-1, 1, W))
    with np.errstate(invalid="ignore"):
        return np.stack([axis / total for axis in axes], -1).astype(np.float32)


def open_clevrer(
    folder: Path,
    *,
    split: Split = "test",
    size: Size | None = None,
    length: int | None = None,
    check: Check = "index",
) -> ClevrerVideos:
    """Open a CLEVRER folder, leaving out (and reporting) every video that cannot be used.

    Args:
        folder: holds `video_00000-01000/video_00000.mp4` and so on, `annotation_*` and `proposal_*.json`, in folders as
            deep as you like.
        split: by number: "train" is 0 to 9999, "val" 10000 to 14999, "test" 15000 to 19999.
        size: what to bring frames to; by default the videos' own.
        length: frames in a clip; by default all of the first video's.
        check: "index" looks at each video's head and index; "decode" reads every frame and label.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder")
    videos = _numbered(folder, "video", "mp4")
    annotations, proposals = (_numbered(folder, kind, "json") for kind in ("annotation", "proposal"))
    chosen = [n for n in sorted(videos) if n in RANGES[split]]
    skipped = [f"{videos[n]}: its annotation is known to be broken" for n in chosen if n in BROKEN]
    chosen = [n for n in chosen if n not in BROKEN]
    annotated = split != "test" or (bool(chosen) and all(n in annotations for n in chosen))
    if annotated:
        skipped += [f"{videos[n]} has no annotation" for n in chosen if n not in annotations]
        chosen = [n for n in chosen if n in annotations]
    files = [_Files(videos[n], annotations.get(n), proposals.get(n)) for n in chosen]
    with ThreadPoolExecutor(8) as pool:
        facts = list(pool.map(_facts, [file.video for file in files]))
    skipped += [fact for fact in facts if isinstance(fact, str)]
    looked_at = [(file, fact) for file, fact in zip(files, facts, strict=True) if not isinstance(fact, str)]
    if looked_at:
        size, length = size or looked_at[0][1].size, length or looked_at[0][1].frames
        short = [(file, fact.frames) for file, fact in looked_at if fact.frames < length]
        skipped += [f"{file.video} has {frames} frames, a clip {length}" for file, frames in short]
        files = [file for file, fact in looked_at if fact.frames >= length]
    if not looked_at or not files or size is None or length is None:
        reason = f"; first: {skipped[0]}" if skipped else ""
        raise UserError(f"{folder} has no {split} video (numbers {RANGES[split][0]} to {RANGES[split][-1]}){reason}")
    masked = annotated and all(file.proposal is not None for file in files)
    source = ClevrerVideos(tuple(files), size, length, annotated, masked, skipped)
    if check == "decode":
        with ThreadPoolExecutor() as pool:
            faults = list(pool.map(lambda n: _fault(source, n), range(len(files))))
        skipped += [fault for fault in faults if fault]
        kept = tuple(file for file, fault in zip(files, faults, strict=True) if not fault)
        if not kept:
            raise UserError(f"none of the {split} videos in {folder} can be read; first: {skipped[0]}")
        source = dataclasses.replace(source, files=kept)
    report(folder, skipped)
    return source


def _facts(path: Path) -> Facts | str:
    """What a video says of itself, or why it cannot be used."""
    try:
        return probe(path)
    except UserError as error:
        return str(error)


def _fault(source: ClevrerVideos, n: int) -> str | None:
    """Why a clip cannot be read, if it cannot."""
    try:
        source.clips([n])
    except UserError as error:
        return str(error)
    return None


def _numbered(folder: Path, kind: str, ending: str) -> dict[int, Path]:
    """All files of one kind by their number."""
    pattern = re.compile(rf"{kind}_(\d{{5}})\.{ending}")
    found = ((pattern.fullmatch(path.name), path) for path in sorted(folder.rglob(f"{kind}_*.{ending}")))
    return {int(match[1]): path for match, path in found if match}
