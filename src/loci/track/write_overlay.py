"""The overlay as a video."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loci.track.draw import Drawer
from loci.track.tracker import Tracked
from loci.track.video_out import video_out
from loci.track.write_tables import Write


@contextmanager
def overlay_mp4(path: Path, size: tuple[int, int], rate: float, slots: int) -> Iterator[Write]:
    """Masks, outlines, centres, trails and ids on the video, with a strip of each slot's reconstruction below.

    Args:
        path: the file.
        size: height and width of the video.
        rate: frames per second.
        slots: how many the network has.
    """
    draw = Drawer(size, slots)
    with video_out(path, rate) as show:

        def write(frame: Tracked) -> None:
            show(draw(frame))

        yield write
