"""The demo: clips that no network was trained on, tracked as any video would be, and scored against what is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from loci.data.clip import VISIBLE, Clip
from loci.data.source import Source
from loci.evaluate import metrics
from loci.evaluate import metrics_permanence as permanence_
from loci.evaluate.tracking import Scores, Seen, score
from loci.track import Tracking, open_tracking
from loci.track.atomic import atomic
from loci.track.background import write_image
from loci.track.outputs import Outputs, Summary, save
from loci.track.tracker import Tracked
from loci.track.video_out import video_out
from loci.track.write_report import movie, page, table

NOWHERE = 1e4
"""The place of a slot without an object, far from everything."""


@dataclass(frozen=True)
class Play:
    """One clip of the demo."""

    name: str
    """Of the clip, and of the network that tracks it."""
    source: Source
    clip: int
    """Which of the source's."""
    rate: float
    """Frames per second to show it at."""
    trim: bool = False
    """Cut masks to what is there: on black a mask may be as large as it likes, and the truth is a digit's ink."""


class Row(NamedTuple):
    """A measure, and its value in words."""

    name: str
    value: str


class Played(NamedTuple):
    """What came of a clip."""

    name: str
    summary: Summary
    seconds: float
    rows: list[Row]


def play(part: Play, out: Path, told: Callable[[Tracked], None] = lambda _frame: None) -> Played:
    """Make a clip, track it from its file, write everything into `out`, and score it."""
    clip = part.source.clips([part.clip])
    out.mkdir(parents=True, exist_ok=True)
    film, scene = out / f"{part.name}.mp4", out / "background.png"
    frames = clip.frames[0].permute(0, 2, 3, 1).numpy()
    with video_out(film, part.rate, quality=10) as write:
        for pixels in frames:
            write(pixels)
    background = None if clip.background is None else clip.background[0, 0].permute(1, 2, 0).numpy()
    if background is not None:
        write_image(scene, background)
    notes: list[str] = []
    with open_tracking(film, part.name, background=background, trim=part.trim, note=notes.append) as tracking:
        watched = Watched(tracking)

        def watch(frame: Tracked) -> None:
            watched.add(frame)
            told(frame)

        settings = {"video": f"{part.name}, clip {part.clip} of the test split", "weights": part.name}
        summary = save(tracking, out, Outputs(), settings, notes=notes, told=watch)
        rows = watched.score(clip)
        seconds = sum(tracking.clock.spent.values())
    return Played(part.name, summary, seconds, rows)


class Watched:
    """What the tracker said of each frame, for the score."""

    def __init__(self, tracking: Tracking) -> None:
        self.slots = tracking.slots
        self.size = tracking.facts.size
        self.labels: list[torch.Tensor] = []
        self.places: list[torch.Tensor] = []

    def add(self, frame: Tracked) -> None:
        """Labels of objects in sight, and where all objects are, both in the video's pixels."""
        known, seen = np.zeros(256, np.int16), frame.slots[frame.seen]
        known[seen + 1] = seen + 1
        self.labels.append(torch.from_numpy(known[frame.labels]))
        places = np.full((self.slots, 2), NOWHERE, np.float32)
        places[frame.slots] = 2 * frame.positions / (np.array(self.size) - 1) - 1
        self.places.append(torch.from_numpy(places))

    def score(self, clip: Clip) -> list[Row]:
        """Frames from the second on: the first is where objects are found."""
        height, width = clip.frames.shape[-2:]
        labels = torch.stack(self.labels)[None, 1:, :height, :width]
        found = Scores()
        score(found, Seen(labels, torch.stack(self.places)[None, 1:]), clip, (height, width))
        return _rows(found)


def _rows(found: Scores) -> list[Row]:
    """The table of the issue."""
    rows, who = [], found.by_mask
    if who.hota is not None:
        rows += [("MOTA", who.clear.mota), ("IDF1", who.identity.idf1), ("HOTA", who.hota.hota)]
    if "FG-ARI" in found.frame:
        rows.append(("FG-ARI", found.mean("FG-ARI")))
    told = [Row(name, f"{value:.1%}") for name, value in rows]
    if not found.permanence:
        return told
    permanence = permanence_.pooled(found.permanence)
    seen = metrics.summary(permanence.error[permanence.state == VISIBLE])
    told.append(Row("position error, seen", f"{seen.median:.1f} pixels (median of {seen.number})"))
    hidden = metrics.summary(permanence.error[permanence.state != VISIBLE])
    if hidden.number:
        told.append(Row("position error, hidden", f"{hidden.median:.1f} pixels (median of {hidden.number})"))
    else:
        told.append(Row("position error, hidden", "no object was held while hidden"))
    back = len(permanence.back_same)
    same = f"{int(permanence.back_same.sum())} of {back}" if back else "none came back"
    told.append(Row("found again by the same slot", same))
    told.append(Row("objects' frames held by no slot", str(int(permanence.unheld.sum()))))
    return told


def write_report(path: Path, played: list[Played]) -> None:
    """One page for all clips."""
    body = []
    for each in played:
        cells = table({row.name: row.value for row in each.rows})
        body.append(
            f"<h2>{each.name}</h2>{movie(path.parent / each.name / 'overlay.mp4', path)}{cells}"
            f"<p>{each.summary.frames} frames, {each.summary.ids} objects found, {each.seconds:.1f} s. "
            f'<a href="{each.name}/report.html">Everything about this clip</a>.</p>'
        )
    with atomic(path) as part:
        part.write_text(page("loci: two clips that no network was trained on", "".join(body)), encoding="utf-8")
