"""A config fitted to a person's own video: the network's size and the number of slots."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from loci.config import Config
from loci.errors import UserError

WIDEST = 320
"""Pixels along the longer side of the network's frames."""
DIFFERENT = 0.1
"""What differs from the background by more than this is an object: the paper's threshold for the foreground."""
SMALLEST = 5e-4
"""The smallest object that is counted, as a share of the picture."""
SPARE = 2
"""More slots than objects."""


def fit(config: Config, *, size: bool, slots: bool) -> Config:
    """The config with the size and the number of slots (those asked for) that the footage it names calls for."""
    from loci.track.background import limited, mixture, sample

    if config.data.path is None:
        raise UserError(f"data.source {config.data.source} needs a file or a folder: --data.path PATH")
    path = first_video(Path(config.data.path))
    frames = sample(path, 100, shrink=limited)
    if len(frames) < 2:
        raise UserError(f"{path} has only {len(frames)} frame; training needs a video")
    model = config.model
    if size:
        height, width = network_size(*frames[0].shape[:2])
        model = replace(model, height=height, width=width)
    if slots:
        small = [cv2.resize(f, (model.width, model.height), interpolation=cv2.INTER_AREA) for f in frames]
        arrays = [np.asarray(frame, np.uint8) for frame in small]
        model = replace(model, slots=count_objects(arrays, mixture(arrays)) + SPARE)
    return replace(config, model=model)


def first_video(path: Path) -> Path:
    """The file itself, or the first of a folder of videos; a folder of images stays as it is."""
    from loci.data.video import CONTAINERS

    if not path.exists():
        raise UserError(f"there is no {path}: --data.path needs a video or a folder that exists")
    videos = sorted(f for f in path.iterdir() if f.suffix.lower() in CONTAINERS) if path.is_dir() else []
    return videos[0] if videos else path


def network_size(height: int, width: int) -> tuple[int, int]:
    """Nearly the same shape, with sides divisible by 16, the longer one at most `WIDEST`, the shorter at least 64."""
    scale = min(1.0, WIDEST / max(height, width))
    return max(64, 16 * round(height * scale / 16)), max(64, 16 * round(width * scale / 16))


def count_objects(frames: list[np.ndarray], background: np.ndarray) -> int:
    """How many objects a busy frame has: separate regions that differ from the background; at least one."""
    counts = []
    for frame in frames:
        gap = np.sqrt(((frame.astype(np.float32) - background) ** 2).mean(2)) / 255
        mask = cv2.morphologyEx((gap > DIFFERENT).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
        _, _, facts, _ = cv2.connectedComponentsWithStats(mask)
        counts.append(int((facts[1:, cv2.CC_STAT_AREA] >= SMALLEST * mask.size).sum()))
    return max(1, math.ceil(float(np.quantile(counts, 0.95))))
