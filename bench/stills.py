"""Stills of overlays, side by side: python bench/stills.py demo/cater/overlay.mp4 docs/img/demo.png 20 80 140 200

Several videos, separated by commas, come one below the other.
"""

import sys
from pathlib import Path

import cv2
import numpy as np

from loci.track.background import write_image
from loci.track.video_in import open_video

WIDTH = 1600


def row(video: str, numbers: set[int]) -> np.ndarray:
    with open_video(video) as frames:
        shown = [frame.pixels for frame in frames if frame.index in numbers]
    return np.concatenate([np.pad(each, ((0, 4), (0, 4), (0, 0)), constant_values=255) for each in shown], 1)


def main(videos: str, out: str, *numbers: str) -> None:
    rows = []
    for video in videos.split(","):
        whole = row(video, {int(number) for number in numbers})
        size = (WIDTH, round(whole.shape[0] * WIDTH / whole.shape[1]))
        rows.append(cv2.resize(whole, size, interpolation=cv2.INTER_AREA))
    write_image(Path(out), np.concatenate(rows).astype(np.uint8))


if __name__ == "__main__":
    main(*sys.argv[1:])
