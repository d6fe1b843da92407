"""The same steps in less time: compiled, and recorded once as a CUDA graph that is then replayed.

A step has a fixed shape and asks the device nothing, so all of its launches, optimiser included, can be one. What is a
number on the host (rates, ramps) is written to the device before the replay. Without a GPU, for the first step of a
sequence, for the first updates of a run and with several processes, the plain step runs; if recording fails, that is
logged with its reason, and the plain step goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from loci.kernels import traces
from loci.model import Loci, State, StepOutput
from loci.model.gatelord import GateL0RD
from loci.model.state import tree_map
from loci.train.optimise import Optimisers
from loci.train.schedule import PLAIN, Settings, Weights, rectification
from loci.train.step import Lesson, learn, train_step

log = logging.getLogger(__name__)
A = TypeVar("A")
R = TypeVar("R")
WARM_UP = 3
OPTIONS: dict[str, Any] = {"constant_and_index_propagation": False}
"""For the compiler: random keys count in wrapping int64, which it would work out in endless integers."""


def unsupported(device: torch.device) -> str | None:
    """Why there is no fast path on a device, or None if there is."""
    if device.type != "cuda":
        return f"steps are recorded on a GPU; this is {device.type}"
    return None


def compiled(function: Any) -> Any:
    """A function or module, compiled for the shapes it is first called with."""
    return torch.compile(function, dynamic=False, options=OPTIONS)


def leaves(tree: Any) -> list[Tensor]:
    """All tensors of a tree, in order."""
    found: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        found.append(x)
        return x

    tree_map(keep, tree)
    return found


class Recorded(Generic[A, R]):
    """Work on a tree of tensors, recorded once and replayed on other numbers of the same shapes.

    The result lives where the last call wrote it: read it, or hand it on, before the next call.
    """

    def __init__(self, work: Callable[[A], R], arguments: A, preserve: Sequence[Tensor] = ()) -> None:
        """Record.

        Args:
            work: Uses nothing but its argument and tensors that stay where they are.
            arguments: A first example; the recording keeps a copy to read from.
            preserve: What the work changes in place; recording leaves it as it was.
        """
        self.work = work
        self.arguments = tree_map(torch.clone, arguments)
        self.places = leaves(self.arguments)
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.places[0].is_cuda:
            self.result = self._record(preserve)

    def _record(self, preserve: Sequence[Tensor]) -> R:
        kept = [tensor.detach().clone() for tensor in preserve]
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    self.work(self.arguments)
        finally:
            current.wait_stream(stream)
            with torch.no_grad():
                for tensor, value in zip(preserve, kept, strict=True):
                    tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # another thread may be making the next batch
            result = self.work(self.arguments)
        self.graph = graph
        return result

    def __call__(self, arguments: A) -> R:
        """The work on these numbers."""
        for place, value in zip(self.places, leaves(arguments), strict=True):
            place.copy_(value, non_blocking=True)
        if self.graph is None:
            return self.work(self.arguments)
        self.graph.replay()
        return self.result


class Kind(NamedTuple):
    """What is fixed in a recording of an update."""

    shapes: tuple[torch.Size, ...]
    bootstrapping: tuple[bool, ...]
    background: bool
    weights: Weights
    clip: float


class FastStep:
    """`train_step` of one network, recorded for each kind of update; called with the rest of its arguments."""

    def __init__(self, learner: nn.Module, model: Loci, optimisers: Optimisers, *, rehearse: bool = False) -> None:
        """Prepare; `rehearse` goes through the same motions without a GPU, eagerly, for tests."""
        self.plain = learner
        self.model = model
        self.optimisers = optimisers
        self.recordings: dict[Kind, Recorded[tuple[State, tuple[Lesson, ...]], tuple[State, Tensor, Tensor]]] = {}
        self.off = None if rehearse else unsupported(model.device)
        if isinstance(learner, DistributedDataParallel):
            self.off = "several processes talk to each other within a step"
        self.learner = learner if rehearse or self.off else compiled(learner)
        if self.off:
            log.info("plain training steps: %s", self.off)
            return
        for layer in model.transition.recurrence:
            if isinstance(layer.cell, GateL0RD):
                layer.cell.fused = traces.available() and model.device.type == "cuda"
        for adam in optimisers.adams.values():
            adam.param_groups[0]["capturable"] = model.device.type == "cuda"

    def __call__(self, state: State, lessons: Sequence[Lesson], settings: Settings) -> tuple[State, Tensor, Tensor]:
        """What `train_step` returns."""
        if self.off or state.fresh or self._starting(settings):
            return train_step(self.plain, self.model, self.optimisers, state, lessons, settings)
        arguments = (state, tuple(lessons))
        kind = Kind(
            tuple(x.shape for x in leaves(arguments)),
            tuple(lesson.bootstrapping for lesson in lessons),
            settings.background,
            settings.weights,
            settings.clip,
        )
        if kind not in self.recordings:
            try:
                self.recordings[kind] = Recorded(self._work(settings), arguments, self._changing())
            except Exception as error:
                self._give_up(error)
                return train_step(self.plain, self.model, self.optimisers, state, lessons, settings)
        self._prepare(settings)
        return self.recordings[kind](arguments)

    def _give_up(self, error: Exception) -> None:
        self.off = f"{type(error).__name__}: {error}"
        log.warning("the fast path does not work here, the plain one goes on: %s", self.off, exc_info=True)
        self.recordings.clear()
        self.model.zero_grad(set_to_none=True)
        for layer in self.model.transition.recurrence:
            if isinstance(layer.cell, GateL0RD):
                layer.cell.fused = False

    def _groups(self, settings: Settings) -> list[str]:
        """The optimisers' groups that learn after the first step of a sequence."""
        fine = ["fine"] if self.model.config.resolution == "fine" else []
        return ["network", *fine, *(["background"] if settings.background else [])]

    def _starting(self, settings: Settings) -> bool:
        """Whether some group is still in RAdam's first updates, which are of another kind."""
        return any(self.optimisers.counts[group] < PLAIN for group in self._groups(settings))

    def _changing(self) -> list[Tensor]:
        moments = [leaf for adam in self.optimisers.adams.values() for s in adam.state.values() for leaf in s.values()]
        return [*self.model.parameters(), *(moment for moment in moments if isinstance(moment, Tensor))]

    def _work(self, settings: Settings) -> Callable[[tuple[State, tuple[Lesson, ...]]], tuple[State, Tensor, Tensor]]:
        """The part of an update that runs on the device."""
        groups = self._groups(settings)

        def work(arguments: tuple[State, tuple[Lesson, ...]]) -> tuple[State, Tensor, Tensor]:
            after, report, dropped = learn(self.learner, self.model, *arguments, settings)
            for group in groups:
                adam = self.optimisers.adams[group]
                adam.found_inf = dropped  # type: ignore[attr-defined]
                adam.step()
            self.model.zero_grad(set_to_none=True)
            return after, report, dropped

        return work

    def _prepare(self, settings: Settings) -> None:
        """The part that the host knows: ramps and rates."""
        self.model.encoder.size_growth.fill_(settings.size_growth)
        self.model.compose.background_growth.fill_(settings.background_growth)
        for group in self._groups(settings):
            self.optimisers.counts[group] += 1
            rate = settings.rate * rectification(self.optimisers.counts[group])
            self.optimisers.adams[group].param_groups[0]["lr"].fill_(rate)


class FastWatch:
    """`Loci.step` without gradients, recorded for each shape of its state; a network in evaluation mode."""

    def __init__(self, model: Loci, *, rehearse: bool = False) -> None:
        """Prepare; `rehearse` as in `FastStep`."""
        self.model = model
        self.off = None if rehearse else unsupported(model.device)
        self.step = model.step if rehearse or self.off else compiled(model.step)
        self.recordings: dict[tuple[torch.Size, ...], Recorded[tuple[Tensor, State], tuple[State, StepOutput]]] = {}

    @torch.no_grad()
    def __call__(self, frame: Tensor, state: State) -> tuple[State, StepOutput]:
        """What `Loci.step` returns, for a uint8 frame on the device."""
        if self.off or state.fresh or frame.dtype != torch.uint8:
            return self.model.step(frame, state)
        arguments = (frame, state)
        shapes = tuple(x.shape for x in leaves(arguments))
        if shapes not in self.recordings:
            try:
                self.recordings[shapes] = Recorded(lambda a: self.step(*a), arguments)
            except Exception as error:
                self.off = f"{type(error).__name__}: {error}"
                log.warning("the fast path does not work here, the plain one goes on: %s", self.off, exc_info=True)
                return self.model.step(frame, state)
        return self.recordings[shapes](arguments)
