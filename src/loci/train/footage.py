"""A config fitted to a person's own video, after a look at whether it can work."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from loci.config import Config, DataConfig
from loci.errors import UserError

if TYPE_CHECKING:
    from loci.track.footage import Look

log = logging.getLogger(__name__)

HELD = 2**31
"""Bytes of frames that are kept in memory for the whole training."""
RESTLESS = 0.4
"""Where a larger share of pixels differs from the still background, one that moves is learned."""
OVERLAP = 10
"""Clips that begin within the length of one: short footage shows an object at many moments of its clip."""


def fit(config: Config, *, size: bool, slots: bool) -> Config:
    """The config with what the footage it names calls for; what is wrong with the footage is said in the log.

    Args:
        config: names the footage in `data.path`.
        size: choose the network's size.
        slots: choose the number of slots.
    """
    if config.data.path is None:
        raise UserError(f"data.source {config.data.source} needs a file or a folder: --data.path PATH")
    from loci.track.video_in import check

    if not Path(config.data.path).is_dir():
        check(config.data.path)  # what is no video is said before anything slow is imported
    from loci.track.footage import look

    found = look(first_video(Path(config.data.path)))
    for name, value in found.settings().items():
        log.info("%s: %s", name, value)
    for words in found.advice:
        log.warning("look at this first: %s", words)
    model = config.model
    if size:
        model = replace(model, height=found.size[0], width=found.size[1], resolution="coarse")
    if slots:
        model = replace(model, slots=found.slots)
    data = cut(config.data, found, model.size)
    if data.background is None and found.foreground > RESTLESS:
        log.info("background: learned before the training, as most of the picture moves")
        data = replace(data, background="learned")
    return replace(config, model=model, data=data)


def cut(data: DataConfig, found: Look, size: tuple[int, int]) -> DataConfig:
    """How clips are taken from the footage, but for what was asked for by name."""
    from loci.data.labelled import is_labelled

    if data.path is None or is_labelled(Path(data.path)):
        return data  # made by `loci data make`: has clips of its own
    stride = max(1, min(found.stride, (found.frames - 1) // max(1, data.length - 1)))
    chosen = {"stride": str(stride), "every": str(max(1, data.length * stride // OVERLAP))}
    if 3 * size[0] * size[1] * found.frames <= HELD:
        chosen["hold"] = "true"
    if found.dark:
        chosen["negative"] = "true"
    asked = {option.partition("=")[0] for option in data.options}
    return replace(data, options=(*data.options, *(f"{k}={v}" for k, v in chosen.items() if k not in asked)))


def first_video(path: Path) -> Path:
    """The file itself, or the first of a folder of videos; a folder of images stays as it is."""
    from loci.data.video_file import CONTAINERS

    if not path.exists():
        raise UserError(f"there is no {path}: --data.path needs a video or a folder that exists")
    videos = sorted(f for f in path.rglob("*") if f.suffix.lower() in CONTAINERS) if path.is_dir() else []
    return videos[0] if videos else path
