"""A moving background learns a video, before there are any objects: an L1 error, one optimiser step for each frame."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from loci import random
from loci.model.background import MovingBackground
from loci.model.frames import as_frame

BATCH = 8
"""Windows of a video that are learned from side by side."""


def scene_error(model: MovingBackground, shown: Tensor, background: Tensor) -> Tensor:
    """The mean absolute error where the frame shows the scene and no object."""
    frame = as_frame(shown, background.dtype, background.device)
    return torch.where(model.objects(frame), 0, (background - frame).abs()).mean()


def pretrain(
    model: MovingBackground,
    frames: Tensor,
    *,
    steps: int = 2000,
    batch: int = BATCH,
    window: int = 8,
    rate: float = 2e-3,
    seed: int = 0,
    told: Callable[[int, float], None] = lambda _step, _loss: None,
) -> None:
    """Learn the background of a video: one optimiser step for each frame, as everything here learns.

    `batch` windows of consecutive frames start anywhere; inside one the cell's state and traces go on.

    Args:
        model: changed in place.
        frames: [T,3,H,W] uint8, consecutive.
        steps: optimiser steps in all.
        batch: windows side by side.
        window: frames in one.
        rate: Adam's learning rate; it falls to a tenth along a cosine.
        seed: of where the windows start.
        told: called with the step and the error after each.
    """
    length = frames.shape[0]
    window = min(window, length)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    draws = random.key(seed, "background windows")
    state, begins = model.start(batch), torch.zeros(batch, dtype=torch.int64)
    for step in range(steps):
        within = step % window
        if within == 0:
            begins = random.integers(random.fold(draws, step), length - window + 1, (batch,))
            state = model.start(batch)
        for group in optimiser.param_groups:
            group["lr"] = rate * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        shown = frames[begins + within].to(model.still.device)
        background, state = model.step(shown, state)
        loss = scene_error(model, shown, background)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        told(step, float(loss.detach()) if step % 50 == 0 else float("nan"))
