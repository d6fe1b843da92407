"""`train_step` in less time: compiled, and recorded with its optimisers as a CUDA graph.

What is a number on the host (rates, ramps) is written to the device before the replay. Without a GPU and for the first
updates of a run the plain step runs; if recording fails, that is logged with its reason, and the plain step goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from loci.kernels import adam
from loci.kernels.launch import available
from loci.kernels.record import Recorded, compiled, leaves, unsupported
from loci.model import Loci, State
from loci.model.gatelord import GateL0RD
from loci.model.state import tree_map
from loci.train.optimise import Optimisers
from loci.train.schedule import PLAIN, Settings, Weights
from loci.train.step import Learner, Lesson, backward, choose, judge, tally, train_step

log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """What is fixed in a recording of an update."""

    shapes: tuple[torch.Size, ...]
    fresh: bool
    background: bool
    dawn: bool
    weights: Weights
    clip: float


Arguments = tuple[State, tuple[Lesson, ...]]
Result = tuple[State, Tensor, Tensor]


class FastStep:
    """`train_step` of one network, recorded for each kind of update; called with the rest of its arguments.

    The state that it returns is overwritten by the next call, so there can be only one sequence at a time.
    """

    def __init__(
        self,
        learner: nn.Module,
        model: Loci,
        optimisers: Optimisers,
        meters: Mapping[str, Tensor] | None = None,
        *,
        share: Callable[[Sequence[Tensor]], None] | None = None,
        rough: bool = False,
        rehearse: bool = False,
        wanted: bool = True,
    ) -> None:
        """Prepare.

        Args:
            learner: What `train_step` takes.
            model: The network.
            optimisers: Its optimisers.
            meters: What `tally` counts every update in.
            share: Takes the mean of gradients over several processes, in place.
            rough: Whether the learner's convolutions are in bfloat16.
            rehearse: Go through the same motions without a GPU, eagerly, for tests.
            wanted: False is the plain step always.
        """
        self.plain = learner
        self.model = model
        self.optimisers = optimisers
        self.meters = meters or {}
        self.share = share
        self.rough = rough
        self.recordings: dict[Kind, Callable[[Arguments], Result]] = {}
        self.state: State | None = None  # where it lives between two updates
        self.pool: Any | None = None
        self.flags = tuple(torch.tensor(flag, device=model.device) for flag in (False, True))
        self.off = None if rehearse else unsupported(model.device) if wanted else "not asked for"
        single = learner if share is None else Learner(model, rough=rough)
        self.first = single  # of a sequence: too rare for a compilation of its own
        self.learner = single if rehearse or self.off else compiled(single)
        if self.off:
            log.info("plain training steps: %s", self.off)
            return
        self.on_gpu = on_gpu = model.device.type == "cuda"
        for layer in model.transition.recurrence:
            if isinstance(layer.cell, GateL0RD):
                layer.cell.fused = available() and on_gpu and model.dtype == torch.float32
        for optimiser in optimisers.adams.values():
            optimiser.param_groups[0]["capturable"] = on_gpu

    def __call__(self, state: State, lessons: Sequence[Lesson], settings: Settings) -> Result:
        """What `train_step` returns."""
        if self.off or self._starting(state, settings):
            return self._plain(state, lessons, settings)
        arguments = (state, tuple(x._replace(bootstrapping=self.flags[bool(x.bootstrapping)]) for x in lessons))
        kind = Kind(
            tuple(x.shape for x in leaves(arguments)),
            state.fresh,
            settings.background,
            settings.dawn,
            settings.weights,
            settings.clip,
        )
        if kind not in self.recordings:
            try:
                self.recordings[kind] = self._record(arguments, settings)
            except Exception as error:
                self._give_up(error)
                return self._plain(state, lessons, settings)
        self._prepare(state, settings)
        return self.recordings[kind](arguments)

    def _plain(self, state: State, lessons: Sequence[Lesson], settings: Settings) -> Result:
        self.model.zero_grad(set_to_none=True)  # a rehearsed step leaves its own
        result = train_step(self.plain, self.model, self.optimisers, state, lessons, settings)
        if self.meters:
            tally(self.meters, result[1], result[2])
        return result

    def _give_up(self, error: Exception) -> None:
        self.off = f"{type(error).__name__}: {error}"
        log.warning("the fast path does not work here, the plain one goes on: %s", self.off, exc_info=True)
        self.recordings.clear()
        self.model.zero_grad(set_to_none=True)
        for layer in self.model.transition.recurrence:
            if isinstance(layer.cell, GateL0RD):
                layer.cell.fused = False

    def _groups(self, state: State, settings: Settings) -> list[str]:
        """The optimisers' groups that learn in this update."""
        fine = ["fine"] if self.model.config.resolution == "fine" else []
        background = ["background"] if settings.background else []
        return ["network", *fine, *background, *(["start"] if state.fresh else [])]

    def _starting(self, state: State, settings: Settings) -> bool:
        """Whether some group has no moments yet, or is in RAdam's first updates, which are of another kind."""
        counts = self.optimisers.counts
        return any(counts[group] < (1 if group == "start" else PLAIN) for group in self._groups(state, settings))

    def _changing(self) -> list[Tensor]:
        moments = [leaf for a in self.optimisers.adams.values() for s in a.state.values() for leaf in s.values()]
        tensors = (*self.model.parameters(), *moments, *self.meters.values())
        return [tensor for tensor in tensors if isinstance(tensor, Tensor)]

    def _record(self, arguments: Arguments, settings: Settings) -> Callable[[Arguments], Result]:
        """One recording; with several processes two, and between them the processes share their gradients."""
        state, lessons = arguments
        if not state.fresh and self.state is None:
            self.state = tree_map(torch.clone, state)
        here = tree_map(torch.clone, state) if state.fresh or self.state is None else self.state
        places = (here, tree_map(torch.clone, lessons))
        if self.model.device.type == "cuda" and self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        learner, groups = self.first if state.fresh else self.learner, self._groups(state, settings)
        at_once: list[adam.Update] = []
        for group in groups:
            self.optimisers.complete(group)

        def gradients(arguments: Arguments) -> tuple[State, Tensor]:
            self.model.zero_grad(set_to_none=True)
            return backward(learner, *arguments, settings)

        def consequences(found: tuple[State, Tensor]) -> Result:
            after, report = found
            report, kept = judge(self.model, report, settings)
            if self.state is None:
                self.state = tree_map(torch.clone, after)
            choose(kept, after._replace(time=self.state.time), here, into=self.state)
            self.state.time.copy_(after.time)
            dropped = (~kept).to(torch.float32)
            self._learn(groups, dropped, at_once)
            if self.meters:
                tally(self.meters, report, dropped)
            return self.state, report, dropped

        changing = self._changing() if self.state is None else [*self._changing(), *leaves(self.state)]
        if self.share is None:
            whole = Recorded(lambda a: consequences(gradients(a)), places, changing, self.pool, self.rough)
            self.model.zero_grad(set_to_none=True)
            return whole
        return self._in_two(Recorded(gradients, places, (), self.pool, self.rough), consequences, changing, self.share)

    def _learn(self, groups: Sequence[str], dropped: Tensor, at_once: list[adam.Update]) -> None:
        """An update of these groups: all that share RAdam's numbers in one launch, which the first call prepares."""
        adams = self.optimisers.adams
        if self.on_gpu and available():
            together = [group for group in groups if group != "start"]
            if not at_once:
                learning = [p for g in together for _, p in self.optimisers.named[g] if p.grad is not None]
                at_once.append(adam.Update([adams[g] for g in together], learning))
            at_once[0](dropped)
            groups = [group for group in groups if group == "start"]
        for group in groups:
            adams[group].found_inf = dropped  # type: ignore[attr-defined]
            adams[group].step()

    def _in_two(
        self,
        first: Recorded[Arguments, tuple[State, Tensor]],
        consequences: Callable[[tuple[State, Tensor]], Result],
        changing: Sequence[Tensor],
        share: Callable[[Sequence[Tensor]], None],
    ) -> Callable[[Arguments], Result]:
        """Between the halves of a recording processes talk to each other, which is not recorded."""
        if first.graph is None:

            def rehearsed(arguments: Arguments) -> Result:
                found = first(arguments)
                share([p.grad for p in self.model.parameters() if p.grad is not None])
                return consequences(found)

            return rehearsed
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        second = Recorded(consequences, first.result, changing, self.pool, self.rough)
        self.model.zero_grad(set_to_none=True)

        def replayed(arguments: Arguments) -> Result:
            found = first(arguments)
            share(gradients)
            return second(found)

        return replayed

    def _prepare(self, state: State, settings: Settings) -> None:
        """The part that the host knows: ramps and rates."""
        self.model.encoder.size_growth.fill_(settings.size_growth)
        self.model.compose.background_growth.fill_(settings.background_growth)
        for group in self._groups(state, settings):
            self.optimisers.advance(group, settings)
