"""A moving background learned from a video's own frames, and kept in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from loci.errors import UserError
from loci.model.background import BackgroundConfig, MovingBackground
from loci.track.atomic import atomic
from loci.track.background import mixture
from loci.track.decode import Pixels
from loci.track.fit import Fit, tensor
from loci.track.video_in import open_video
from loci.train.background import pretrain

FORMAT = "loci background 1"
MOST = 2**30
"""Bytes of frames that are held to learn from; of a longer video, the beginning."""


def learn(
    video: str | Path,
    size: tuple[int, int],
    *,
    letterbox: bool | None = None,
    steps: int = 2000,
    seed: int = 0,
    device: str = "cpu",
    told: Callable[[int, float], None] = lambda _step, _loss: None,
) -> MovingBackground:
    """Learn the background of a video at a network's size [height, width]; see `pretrain`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MovingBackground(BackgroundConfig(*size)).to(device)
    with open_video(video) as opened:
        fit = Fit.of(opened.facts.size, size, letterbox)
        most = MOST // (size[0] * size[1] * 3)
        small = [fit.shrink(frame.pixels) for frame, _ in zip(opened, range(most), strict=False)]
    if len(small) < 2:
        raise UserError(f"{video!s} has only {len(small)} frame; a background that moves needs some")
    frames = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).contiguous()
    model.begin_from(frames)
    pretrain(model, frames, steps=steps, seed=seed, told=told)
    return model.eval()


def save(path: Path, model: MovingBackground) -> None:
    """Write a file that `load` reads."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic(path) as part:
        save_file(tensors, part, {"format": FORMAT, "config": json.dumps(model.config.as_dict())})


def load(path: Path) -> MovingBackground:
    """A moving background, ready to use."""
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            if facts.get("format") != FORMAT:
                raise UserError(f"{path} is no moving background; make one with `loci background --method autoencoder`")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
        model = MovingBackground(BackgroundConfig(**json.loads(facts["config"])))
        model.load_state_dict(tensors)
    except (SafetensorError, OSError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a moving background: {error}") from error
    return model.eval()


class Compared(NamedTuple):
    """The moving background beside the still one."""

    picture: Pixels
    moving: float
    still: float


@torch.inference_mode()
def compare(video: str | Path, model: MovingBackground, most: int = 300) -> Compared:
    """Follow the beginning of a video: four moments of it, and how far each background is from the typical pixel.

    The typical pixel is the median one of each frame: objects, which cover less than half, do not count.
    """
    device = model.still.device
    with open_video(video) as opened:
        fit = Fit.of(opened.facts.size, model.size)
        small = [fit.shrink(frame.pixels) for frame, _ in zip(opened, range(most), strict=False)]
    still = mixture(small[:: -(-len(small) // 200)])
    moments = {round(share * (len(small) - 1)) for share in (0.25, 0.5, 0.75, 1)}
    state, rows, errors = model.start(1), [], []
    for index, pixels in enumerate(small):
        background, state = model.step(tensor(pixels)[None].to(device), state)
        moving = (background[0].permute(1, 2, 0) * 255).round().to(torch.uint8).cpu().numpy()
        errors.append([np.median(np.abs(each.astype(int) - pixels).mean(-1)) for each in (moving, still)])
        if index in moments:
            rows.append(np.concatenate((pixels, moving, still), 1))
    return Compared(np.concatenate(rows), *(float(error) for error in np.mean(errors, 0)))
