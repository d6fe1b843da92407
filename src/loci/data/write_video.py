"""Frames to a video file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import av
from torch import Tensor

from loci.data.write import whole

Codec = Literal["h264", "mjpeg"]

_H264 = {"crf": "12", "preset": "veryfast", "threads": "1", "x264-params": "mbtree=0"}
"""Without x264's look-ahead tree, which makes some files come out otherwise now and then (docs/decisions.md)."""


def write_video(path: Path, frames: Tensor, rate: int, codec: Codec = "h264") -> None:
    """Encode frames [T,3,H,W] uint8; the file is there when it is complete.

    Args:
        path: The file; its ending chooses the container.
        frames: What to show.
        rate: Frames per second.
        codec: "h264" plays everywhere (colour is halved in resolution where both sides are even), "mjpeg" has each
            frame for itself, as CATER's files do.
    """
    height, width = frames.shape[-2:]
    with whole(path) as part, av.open(str(part), "w", format=path.suffix[1:]) as container:
        if codec == "h264":
            stream = container.add_stream("libx264", rate=rate, options=_H264)
            stream.pix_fmt = "yuv444p" if height % 2 or width % 2 else "yuv420p"
        else:
            stream = container.add_stream("mjpeg", rate=rate, options={"qmin": "2", "qmax": "2"})
            stream.pix_fmt = "yuvj420p"
        stream.height, stream.width = height, width
        for picture in frames.permute(0, 2, 3, 1).contiguous().numpy():
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=stream.pix_fmt)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
