"""One picture of how training goes: frames, predictions, masks in slot colours, and what each slot paints."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from loci import random
from loci.model import Loci
from loci.model.frames import as_frame
from loci.train.feed import Batch
from loci.train.validate import watch

COLUMNS = 8
GAP = 2
SMALL = 96
"""Frames lower than this are shown larger."""


def palette(slots: int, like: Tensor) -> Tensor:
    """A colour for every slot, [K,3], all of the same lightness around the wheel."""
    angle = 2 * math.pi * torch.arange(slots, device=like.device, dtype=like.dtype) / slots
    thirds = torch.tensor([0.0, 2.0, 4.0], device=like.device, dtype=like.dtype) * math.pi / 3
    return 0.5 + 0.5 * torch.cos(angle[:, None] - thirds)


@torch.no_grad()
def training_picture(model: Loci, batch: Batch, seed: int) -> Tensor:
    """Rows of the next frame, its prediction, the masks and each slot; columns of times; [3,H,W] uint8.

    The batch has one sequence.
    """
    was_training = model.training
    model.eval()
    steps = batch.frames.shape[1] - 1
    times = {round(i * (steps - 1) / (COLUMNS - 1)) for i in range(COLUMNS)}
    keys = random.key(seed, "picture", torch.zeros(1, dtype=torch.int64, device=model.device), device=model.device)
    columns = []
    for time, _, output in watch(model, batch, keys):
        if time not in times:
            continue
        truth = as_frame(batch.frames[:, time + 1], model.dtype, model.device)
        masks = output.masks[:, :-1, None]
        coloured = (masks * palette(masks.shape[1], truth)[None, :, :, None, None]).sum(1)
        slots = (masks * output.colours)[0]
        columns.append(torch.stack([truth[0], output.frame[0], coloured[0], *slots]))
    model.train(was_training)
    grid = torch.stack(columns, 1)  # [rows, columns, 3, H, W]
    height = grid.shape[3]
    grid = torch.nn.functional.pad(grid, (0, GAP, 0, GAP), value=0.5)
    larger = max(1, SMALL // height)
    grid = grid.repeat_interleave(larger, 3).repeat_interleave(larger, 4)
    rows, across, _, height, width = grid.shape
    whole = grid.permute(2, 0, 3, 1, 4).reshape(3, rows * height, across * width)
    return (whole.clamp(0, 1) * 255).round().to(torch.uint8).cpu()
