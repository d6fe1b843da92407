"""One training step, the only one there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from loci.model import Loci, State
from loci.model.frames import as_frame
from loci.model.loss import loss_terms, object_error, warmup_target
from loci.train.optimise import Optimisers
from loci.train.schedule import Settings

STATISTICS = (
    "loss",
    "reconstruction",
    "position",
    "object",
    "time",
    "supervision",
    "l2_object",
    "visible",
    "gates",
    "gradient",
)
"""What an update reports: the loss and its terms without their weights, the paper's L2_object, how many slots are
visible, the share of open gates, the length of the gradient."""


class Lesson(NamedTuple):
    """A frame and what to make of it."""

    frame: Tensor
    """[B,3,H,W] uint8"""
    target: Tensor
    """[B,3,H,W] uint8, the next frame; in the bootstrap steps the frame itself."""
    bootstrapping: bool = False
    """Whether this is one of the extra steps on the first frame."""
    background: Tensor | None = None
    """[B,3,H,W] of this frame, where it moves."""
    snitch: Tensor | None = None
    """[B,2] where the snitch is in the target."""


class Learner(nn.Module):
    """The network and its loss, as one module that DistributedDataParallel can wrap.

    Only the loss that it returns has a graph.
    """

    def __init__(self, model: Loci) -> None:
        super().__init__()
        self.model = model

    def forward(self, state: State, lessons: Sequence[Lesson], settings: Settings) -> tuple[Tensor, State, Tensor]:
        """Return the loss, the state after the lessons, and their statistics but for the gradient's length.

        With back-propagation through time the graph reaches over all lessons of the call, and is then cut.
        """
        losses, reports = [], []
        for lesson in lessons:
            loss, state, report = self._one(state, lesson, settings)
            losses.append(loss)
            reports.append(report)
        return torch.stack(losses).mean(), state.detach(), torch.stack(reports).mean(0)

    def _one(self, state: State, lesson: Lesson, settings: Settings) -> tuple[Tensor, State, Tensor]:
        weights = settings.weights
        state, output = self.model.step(
            lesson.frame, state, bootstrapping=lesson.bootstrapping, background=lesson.background
        )
        whole = as_frame(lesson.target, self.model.dtype, self.model.device)
        sound = torch.isfinite(output.frame.detach()).all()
        output = output._replace(frame=output.frame.nan_to_num())  # torch's cross-entropy stops the device at a NaN
        terms = loss_terms(
            self.model.decoder,
            state,
            output,
            whole if settings.background else warmup_target(whole, state.background),
            bootstrapping=lesson.bootstrapping,
            snitch=lesson.snitch if weights.supervision else None,
            regularise=weights.object > 0 or weights.time > 0,
        )
        loss = (
            weights.reconstruction * terms.reconstruction
            + weights.position * terms.position
            + weights.object * terms.object
            + weights.time * terms.time
            + weights.supervision * terms.supervision
        )
        # Not finite here makes all gradients so, in every process, and the update is left out.
        loss = loss * torch.where(sound & torch.isfinite(loss.detach()), 1.0, math.nan)
        with torch.no_grad():
            missed = object_error(output.frame, whole, state.background)
            visible = (output.visible > 0.5).to(loss.dtype).sum(1).mean()
            report = torch.stack([loss, *terms, missed, visible, output.gates.mean()]).detach()
        return loss, state, report


def train_step(
    learner: nn.Module,
    model: Loci,
    optimisers: Optimisers,
    state: State,
    lessons: Sequence[Lesson],
    settings: Settings,
) -> tuple[State, Tensor, Tensor]:
    """Learn from a frame and the next one; from several with back-propagation through time.

    An update whose loss or gradient is not finite is left out, and the state stays as it was. Nothing here waits for
    the device (but on the CPU, where nothing has to be waited for).

    Args:
        learner: A `Learner` of the model, as it is or wrapped for several devices.
        model: The network.
        optimisers: Its optimisers.
        state: What the last step returned.
        lessons: One, or `train.window` many.
        settings: What the schedule says about this update.

    Returns:
        The state; the `STATISTICS` of the update, [10], zero if it was dropped; and whether it was dropped, 0 or 1.
    """
    model.encoder.size_growth.fill_(settings.size_growth)
    model.compose.background_growth.fill_(settings.background_growth)
    first = state.fresh
    state, report, dropped = learn(learner, model, state, lessons, settings)
    optimisers.step(settings, first=first, dropped=dropped)
    return state, report, dropped


def learn(
    learner: nn.Module, model: Loci, state: State, lessons: Sequence[Lesson], settings: Settings
) -> tuple[State, Tensor, Tensor]:
    """All of an update but for the optimisers, of which nothing needs the host: leaves gradients, returns the same."""
    loss, after, report = learner(state, lessons, settings)
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    length = nn.utils.get_total_norm(gradients)
    kept = torch.isfinite(length)
    if settings.clip:
        nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip, length)
    report = torch.cat((report, length[None].to(report.dtype)))
    return _choose(kept, after, state), torch.where(kept, report, 0), (~kept).to(torch.float32)


def _choose(kept: Tensor, after: State, before: State) -> State:
    """The new state, or the one before; time goes on in both, so that other random numbers come next."""
    if not kept.is_cuda and bool(kept):
        return after
    chosen: State = _where(kept, after, before)
    return chosen._replace(time=after.time)


def _where(kept: Tensor, after: Any, before: Any) -> Any:
    """`torch.where` over two trees; what the one before does not have yet (traces) is zero."""
    if isinstance(after, Tensor):
        return torch.where(kept, after, 0 if before is None else before)
    if isinstance(after, tuple):
        olds = before if before is not None else [None] * len(after)
        items = [_where(kept, new, old) for new, old in zip(after, olds, strict=True)]
        return type(after)(*items) if hasattr(after, "_fields") else type(after)(items)
    return after
