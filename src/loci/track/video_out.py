"""Video out: H.264 that every browser plays, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from loci.track.atomic import atomic

Pixels = NDArray[np.uint8]


@contextmanager
def video_out(path: Path, rate: float, quality: int = 21) -> Iterator[Callable[[Pixels], None]]:
    """Write an mp4: call what this yields with RGB pictures [H,W,3] of one size.

    Sides are made even by repeating the last row or column, as H.264 needs. Where no picture came, no file is left.

    Args:
        path: where it will be, once it is complete.
        rate: frames per second.
        quality: x264's constant rate factor, smaller is better.
    """
    exact = Fraction(rate).limit_denominator(1001)
    with atomic(path) as part:
        container = av.open(str(part), "w", format="mp4", options={"movflags": "+faststart"})
        stream = container.add_stream("libx264", rate=exact, options={"crf": str(quality), "preset": "veryfast"})
        count = 0

        def write(pixels: Pixels) -> None:
            nonlocal count
            height, width = pixels.shape[:2]
            even = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            if count == 0:
                stream.height, stream.width = even.shape[:2]
                stream.pix_fmt = "yuv420p"
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24").reformat(format="yuv420p")
            picture.pts, picture.time_base = count, 1 / exact
            container.mux(stream.encode(picture))
            count += 1

        try:
            yield write
            if count:
                container.mux(stream.encode())
        finally:
            container.close()
        if not count:
            part.write_bytes(b"")
    if not count:
        path.unlink(missing_ok=True)
