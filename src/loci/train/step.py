"""One training step, the only one there is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from loci.kernels import traces
from loci.kernels.precision import rough
from loci.model import Loci, State
from loci.model.frames import as_frame
from loci.model.loss import dawn_target, loss_terms, object_error, warmup_target
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
    bootstrapping: bool | Tensor = False
    """Whether this is one of the extra steps on the first frame; a tensor where one recording is to do for both."""
    background: Tensor | None = None
    """[B,3,H,W] of this frame, where it moves."""
    snitch: Tensor | None = None
    """[B,2] where the snitch is in the target."""
    blind: Tensor | None = None
    """[B] bool, who sees its own prediction in place of the frame."""


class Learner(nn.Module):
    """The network and its loss, as one module that DistributedDataParallel can wrap.

    Only the loss that it returns has a graph.
    """

    def __init__(self, model: Loci, *, rough: bool = False) -> None:
        """Wrap a network; `rough` has its convolutions run in bfloat16, all else stays in float32."""
        super().__init__()
        self.model = model
        self.rough = rough

    def forward(self, state: State, lessons: Sequence[Lesson], settings: Settings) -> tuple[Tensor, State, Tensor]:
        """Return the loss, the state after the lessons, and their statistics but for the gradient's length.

        With back-propagation through time the graph reaches over all lessons of the call, and is then cut.
        """
        losses, reports = [], []
        for lesson in lessons:
            with rough(state.time.device.type) if self.rough else nullcontext():
                loss, state, report = self._one(state, lesson, settings)
            losses.append(loss)
            reports.append(report)
        return torch.stack(losses).mean(), state.detach(), torch.stack(reports).mean(0)

    def _one(self, state: State, lesson: Lesson, settings: Settings) -> tuple[Tensor, State, Tensor]:
        weights = settings.weights
        state, output = self.model.step(
            lesson.frame,
            state,
            bootstrapping=lesson.bootstrapping,
            background=lesson.background,
            blind=lesson.blind,
        )
        whole = as_frame(lesson.target, self.model.dtype, self.model.device)
        sound = torch.isfinite(output.frame.detach()).all()
        output = output._replace(frame=output.frame.nan_to_num())  # torch's cross-entropy stops the device at a NaN
        terms = loss_terms(
            self.model.decoder,
            state,
            output,
            self._target(whole, state.background, settings),
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

    def _target(self, whole: Tensor, background: Tensor, settings: Settings) -> Tensor:
        """What the prediction is to be."""
        if not settings.background:
            return warmup_target(whole, background)
        return dawn_target(whole, background, self.model.compose.shown()) if settings.dawn else whole


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
    after, report = backward(learner, state, lessons, settings)
    report, kept = judge(model, report, settings)
    dropped = (~kept).to(torch.float32)
    optimisers.step(settings, first=state.fresh, dropped=dropped)
    return _choose(kept, after, state), report, dropped


def backward(learner: nn.Module, state: State, lessons: Sequence[Lesson], settings: Settings) -> tuple[State, Tensor]:
    """Leave gradients in the network; return the state after the lessons and their statistics."""
    loss, after, report = learner(state, lessons, settings)
    loss.backward()
    return after, report


def judge(model: Loci, report: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """The `STATISTICS`, zero if the update is to be dropped, and whether it is to be kept; cuts long gradients."""
    length = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    kept = torch.isfinite(length)
    if settings.clip:
        nn.utils.clip_grads_with_norm_(model.parameters(), settings.clip, length)
    report = torch.cat((report, length[None].to(report.dtype)))
    return torch.where(kept, report, 0), kept


def new_meters(device: torch.device) -> dict[str, Tensor]:
    """What `tally` counts in: numbers on the device, read every so often."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    names = ("updates", "kept", "dropped", "in_a_row", "longest")
    return {**{name: zero.clone() for name in names}, "sum": zero.repeat(len(STATISTICS))}


def tally(meters: Mapping[str, Tensor], report: Tensor, dropped: Tensor) -> None:
    """Count an update."""
    meters["sum"].add_(report)
    meters["updates"].add_(1)
    meters["kept"].add_(1 - dropped)
    meters["dropped"].add_(dropped)
    meters["in_a_row"].add_(1).mul_(dropped)
    torch.maximum(meters["longest"], meters["in_a_row"], out=meters["longest"])


def _choose(kept: Tensor, after: State, before: State) -> State:
    """The new state, or the one before; time goes on in both, so that other random numbers come next."""
    if not kept.is_cuda and bool(kept):
        return after
    chosen: State = choose(kept, after, before)
    return chosen._replace(time=after.time)


def choose(kept: Tensor, after: Any, before: Any, into: Any = None) -> Any:
    """`torch.where` over two trees; what the one before does not have yet (traces) is zero.

    Args:
        kept: Whether it is `after`.
        after: The tree if so.
        before: The tree if not.
        into: The tree that the result is written to; a new one by default.
    """
    if isinstance(after, Tensor):
        if into is None:
            return torch.where(kept, after, 0 if before is None else before)
        if after.data_ptr() == into.data_ptr():
            return into
        if before is into and traces.fits(after, into):
            traces.keep_if(kept, after, into)
        else:
            torch.where(kept, after, torch.zeros_like(after) if before is None else before, out=into)
        return into
    if isinstance(after, tuple):
        others = [tree if tree is not None else [None] * len(after) for tree in (before, into)]
        items = [choose(kept, *parts) for parts in zip(after, *others, strict=True)]
        return type(after)(*items) if hasattr(after, "_fields") else type(after)(items)
    return after
