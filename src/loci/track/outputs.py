"""Everything `loci track` leaves in a folder, written as the video goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from loci.errors import UserError
from loci.track import Tracking
from loci.track.atomic import writable_folder
from loci.track.tracker import Tracked
from loci.track.write_codes import codes_npz
from loci.track.write_masks import masks_json
from loci.track.write_overlay import overlay_mp4
from loci.track.write_report import report_html
from loci.track.write_tables import Write, mot_txt, tracks_csv


@dataclass(frozen=True)
class Outputs:
    """Which files to write."""

    overlay: bool = True
    """overlay.mp4: masks, outlines, centres, trails and ids on the video."""
    csv: bool = True
    """tracks.csv: one line for each object and frame."""
    mot: bool = True
    """mot.txt: MOTChallenge."""
    masks: bool = True
    """masks.json: COCO run lengths in the layout of YouTube-VIS."""
    codes: bool = True
    """codes.npz: what and where of every slot."""
    report: bool = True
    """report.html: all of it to look at."""


class Summary(NamedTuple):
    """What came of it."""

    frames: int
    ids: int
    stopped: bool
    """Whether a person ended a live video."""


def save(
    tracking: Tracking,
    out: Path,
    outputs: Outputs,
    settings: Mapping[str, object],
    *,
    notes: list[str],
    told: Callable[[Tracked], None] = lambda _frame: None,
) -> Summary:
    """Track to the end and write the files; each is whole, or as it was before.

    Args:
        tracking: the video and its network.
        out: the folder.
        outputs: which files.
        settings: what the report says of how it was done.
        notes: what is wrong with the video; may grow until the end.
        told: called after each frame.
    """
    writable_folder(out)
    frames, ids, stopped = 0, 0, False
    with ExitStack() as stack:
        writers = _opened(stack, tracking, out, outputs, settings, notes)
        try:
            for frame in tracking.frames:
                for stage, write in writers:
                    with tracking.clock(stage):
                        write(frame)
                frames, ids = frames + 1, max(ids, int(frame.ids.max(initial=0)))
                told(frame)
        except KeyboardInterrupt:
            if not (tracking.facts.live and frames):
                raise
            stopped = True  # Ctrl-C is how a live video ends
        if not frames:
            raise UserError(f"no frame came from {tracking.facts.name!r}")
    return Summary(frames, ids, stopped)


def _opened(
    stack: ExitStack, tracking: Tracking, out: Path, outputs: Outputs, settings: Mapping[str, object], notes: list[str]
) -> list[tuple[str, Write]]:
    """Writers with the name of what their time is counted as; the report first, so that it is closed last."""
    facts, slots = tracking.facts, tracking.slots
    writers: list[tuple[str, Write]] = []
    if outputs.report:
        overlay = out / "overlay.mp4" if outputs.overlay else out / "no overlay"
        background = tracking.fit.turned(tracking.scene.picture)
        about = report_html(out / "report.html", settings, background, tracking.clock, overlay, notes)
        writers.append(("drawing", stack.enter_context(about)))
    if outputs.overlay:
        shown = overlay_mp4(out / "overlay.mp4", facts.size, facts.rate, slots)
        writers.append(("drawing", stack.enter_context(shown)))
    if outputs.csv:
        writers.append(("writing", stack.enter_context(tracks_csv(out / "tracks.csv"))))
    if outputs.mot:
        writers.append(("writing", stack.enter_context(mot_txt(out / "mot.txt"))))
    if outputs.masks:
        writers.append(("writing", stack.enter_context(masks_json(out / "masks.json", facts.name))))
    if outputs.codes:
        codes = codes_npz(out / "codes.npz", slots, tracking.model.config.gestalt)
        writers.append(("writing", stack.enter_context(codes)))
    return writers
