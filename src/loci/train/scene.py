"""What the scene looks like without objects, where the source does not say: a picture, or a network that follows it."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import torch
from torch import Tensor

from loci.config import Config
from loci.data.source import Source
from loci.model.background import BackgroundConfig, MovingBackground
from loci.train.background import BATCH, pretrain

log = logging.getLogger(__name__)

LEARNED = "learned"
"""In place of a picture's name: learn a background that moves, before the training begins."""
SAMPLE = 200
"""Frames that a still background is worked out from."""
FIRST = 10
"""How often the moving background sees the first frame before a sequence."""
MOST = 2**29
"""Bytes of frames that a moving background learns from."""


class Scene:
    """Gives the background of frames: the same picture for all, or what the network makes of each."""

    def __init__(self, shown: Tensor | MovingBackground) -> None:
        self.shown = shown

    @torch.no_grad()
    def background(self, frames: Tensor) -> Tensor:
        """[B,1,3,H,W] uint8 for frames [B,T,3,H,W], or [B,T,3,H,W] where it moves."""
        if isinstance(self.shown, Tensor):
            still = self.shown.to(frames.device)
            return still[None, None].expand(frames.shape[0], 1, -1, -1, -1).contiguous()
        state, seen = self.shown.start(frames.shape[0]), []
        for time in [0] * FIRST + list(range(frames.shape[1])):
            background, state = self.shown.step(frames[:, time], state)
            seen.append(background.mul(255).round().to(torch.uint8))
        return torch.stack(seen[FIRST:], 1)


def named_scene(
    config: Config, source: Source, out: Path | None, device: torch.device, *, writes: bool = True
) -> Scene | None:
    """The scene that the config names; None where the source is to say it. Of several processes only one `writes`."""
    named = config.data.background
    if named is None:
        return None
    if named == LEARNED:
        return Scene(_learned(config, source, out, device, writes))
    from loci.data.picture import read_image, resized
    from loci.data.video import negatives

    picture = resized(read_image(Path(named)), source.size)
    picture = 255 - picture if negatives(config.data) else picture
    return Scene(torch.from_numpy(picture).permute(2, 0, 1).contiguous())


def still_scene(source: Source, count: int, out: Path | None) -> Scene:
    """The paper's mixture of Gaussians over frames from all of the source; also as a picture in the run's folder."""
    from loci.track.background import mixture, write_image

    clips = min(count, 20)
    frames = []
    for clip in range(clips):
        shown = source.clips([clip * count // clips], labels=False).frames[0].cpu()
        step = max(1, len(shown) * clips // SAMPLE)
        frames += [frame.permute(1, 2, 0).contiguous().numpy() for frame in shown[::step]]
    picture = mixture(frames)
    if out is not None:
        write_image(out / "background.png", picture)
    return Scene(torch.from_numpy(picture.copy()).permute(2, 0, 1).contiguous())


def _tell(update: int, error: float) -> None:
    if not math.isnan(error) and update % 500 == 0:
        log.info("background after %d updates: error %.4f", update, error)


def _learned(config: Config, source: Source, out: Path | None, device: torch.device, writes: bool) -> MovingBackground:
    """Trained on the beginning of the source, or read from the run's folder if that was done before."""
    from loci.track.learn_background import load, save

    height, width = source.size
    file = None if out is None else out / f"background_{height}x{width}.safetensors"
    if file is not None and file.exists():
        return load(file).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        model = MovingBackground(BackgroundConfig(height, width)).to(device)
    updates = config.train.background_updates
    wanted = min(MOST // (3 * height * width), max(SAMPLE, updates * BATCH))  # an update looks at one frame of each
    clips = max(1, min(len(source), math.ceil(wanted / source.length)))
    frames = torch.cat([source.clips([n], labels=False).frames[0].cpu() for n in range(clips)])
    model.begin_from(frames)
    log.info("learning the background from %d frames of %dx%d in %d updates", len(frames), height, width, updates)
    pretrain(
        model,
        frames,
        steps=updates,
        seed=config.train.seed,
        told=_tell,
    )
    if file is not None and writes:
        save(file, model)
    return model.eval()
