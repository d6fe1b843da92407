"""How well the network does on sequences that it does not learn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from loci import random
from loci.model import Loci, State, StepOutput
from loci.model.frames import as_frame
from loci.model.loss import object_error, reconstruction
from loci.train.feed import Batch, Feed

MEASURES = ("reconstruction", "l2_object", "squared_error", "visible", "gates")
"""The cross-entropy of the whole frame, the paper's L2_object, the mean squared error, visible slots, open gates."""


def watch(model: Loci, batch: Batch, keys: Tensor) -> Iterator[tuple[int, State, StepOutput]]:
    """Bootstrap on the first frame, then frame by frame without noise; ends with the last frame but one."""
    frames, background = batch.frames, batch.background
    state = model.start(frames.shape[0], background[:, 0].contiguous(), keys=keys)
    state = model.bootstrap(frames[:, 0], state, noise=False)
    for time in range(frames.shape[1] - 1):
        moving = background[:, time] if background.shape[1] > 1 else None
        state, output = model.step(frames[:, time], state, noise=False, background=moving)
        yield time, state, output


@torch.no_grad()
def evaluate(model: Loci, feed: Feed, clips: Sequence[int], portion: int, seed: int) -> Tensor:
    """The sum of each of `MEASURES` over these clips, and their number, [6]."""
    was_training = model.training
    model.eval()
    total = torch.zeros(len(MEASURES) + 1, dtype=torch.float64, device=model.device)
    for begin in range(0, len(clips), portion):
        some = clips[begin : begin + portion]
        batch = feed.again(some)
        keys = random.key(seed, "validation", torch.tensor(some, device=model.device), device=model.device)
        for time, state, output in watch(model, batch, keys):
            target = as_frame(batch.frames[:, time + 1], model.dtype, model.device)
            predicted = output.frame.nan_to_num()
            values = torch.stack(
                [
                    reconstruction(predicted, target),
                    object_error(predicted, target, state.background),
                    ((predicted - target) ** 2).mean(),
                    (output.visible > 0.5).to(target.dtype).sum(1).mean(),
                    output.gates.mean(),
                ]
            )
            total[:-1] += values.double() * len(some) / (batch.frames.shape[1] - 1)
        total[-1] += len(some)
    model.train(was_training)
    return total
