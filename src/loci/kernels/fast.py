"""A network that watches in less time: steps compiled and recorded as CUDA graphs; on a CPU, as lines of operators."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from loci.kernels.line import Line
from loci.kernels.precision import rough
from loci.kernels.record import Recorded, compiled, leaves, unsupported
from loci.model import Code, Loci, State, StepOutput
from loci.model.frames import as_frame, check_frame
from loci.model.state import stack, tree_map

log = logging.getLogger(__name__)
T = TypeVar("T")
Precision = Literal["float32", "bfloat16"]
PATIENCE = 100
"""Plain steps on a CPU before a line is recorded: it takes as long as they do, and a short clip never pays for it."""


class FastWatch:
    """A network that watches, its steps recorded for each shape; in evaluation mode and without gradients.

    It can stand for `Loci` where something is watched or imagined. On a GPU what `step` returns is overwritten by the
    next step, from whatever state; what `bootstrap`, `observe` and `imagine` return is not.
    """

    def __init__(
        self, model: Loci, *, precision: Precision = "float32", rehearse: bool = False, wanted: bool = True
    ) -> None:
        """Prepare; convolutions in this precision; `rehearse` and `wanted` as in `FastStep`."""
        self.model = model
        self.size, self.config = model.size, model.config
        self.precision = precision
        self.on_cpu = model.device.type == "cpu" and not rehearse
        refused = None if self.on_cpu or rehearse else unsupported(model.device)
        self.off = refused if wanted else "not asked for"
        ready = (lambda work: work) if rehearse or self.on_cpu or self.off else compiled
        self.see, self.dream = ready(self._see), ready(self._dream)
        self.recordings: dict[Any, Callable[[Any], tuple[State, StepOutput]]] = {}
        self.waited: Counter[Any] = Counter()
        self.states: dict[Any, State] = {}

    def start(self, *args: Any, **kwargs: Any) -> State:
        """What `Loci.start` gives."""
        return self.model.start(*args, **kwargs)

    @torch.no_grad()
    def step(
        self,
        frame: Tensor,
        state: State,
        *,
        background: Tensor | None = None,
        disturb: Callable[[Code], Code] | None = None,
    ) -> tuple[State, StepOutput]:
        """What `Loci.step` returns."""
        frame = frame.to(self.model.device, non_blocking=True)
        if frame.dtype != torch.uint8 or disturb is not None or state.fresh or self.off:
            with self._precisely():
                return self.model.step(frame, state, noise=False, background=background, disturb=disturb)
        check_frame(frame, self.size, state.time.shape[0], "frame")
        if background is not None:
            check_frame(background, self.size, state.time.shape[0], "background")
            state = state._replace(background=as_frame(background, self.model.dtype, self.model.device))
        return self._replay("see", self.see, (state, frame))

    __call__ = step

    def bootstrap(self, frame: Tensor, state: State) -> State:
        """What `Loci.bootstrap` gives."""
        for _ in range(self.config.bootstrap):
            state, _ = self.step(frame, state)
        return self._kept(state)

    def observe(self, frames: Tensor, state: State) -> tuple[State, StepOutput]:
        """What `Loci.observe` gives."""
        outputs = []
        for frame in frames.unbind(1):
            state, output = self.step(frame, state)
            outputs.append(self._kept(output))
        return self._kept(state), stack(outputs)

    @torch.no_grad()
    def imagine(self, state: State, steps: int) -> tuple[State, StepOutput]:
        """What `Loci.imagine` gives."""
        if state.fresh or self.off:
            with self._precisely():
                return self.model.imagine(state, steps)
        outputs = []
        for _ in range(steps):
            state, output = self._replay("dream", self.dream, (state,))
            outputs.append(self._kept(output))
        return self._kept(state), stack(outputs)

    def _see(self, arguments: tuple[State, Tensor]) -> tuple[State, StepOutput]:
        state, frame = arguments
        with self._precisely():
            return self.model.step(frame, state, noise=False)

    def _dream(self, arguments: tuple[State]) -> tuple[State, StepOutput]:
        with self._precisely():
            return self.model.dream(arguments[0])

    def _precisely(self) -> AbstractContextManager:
        return rough(self.model.device.type) if self.precision == "bfloat16" else nullcontext()

    def _kept(self, tree: T) -> T:
        """Out of the way of the next step."""
        return tree if self.off or self.on_cpu else tree_map(torch.clone, tree)

    def _replay(self, name: str, work: Callable[[Any], tuple[State, StepOutput]], arguments: Any) -> Any:
        kind = name, tuple(x.shape for x in leaves(arguments[0]))
        if self.on_cpu and self._early(kind):
            return work(arguments)
        if kind not in self.recordings:
            try:
                self.recordings[kind] = self._record(kind, work, arguments)
            except Exception as error:
                self.off = f"{type(error).__name__}: {error}"
                log.warning("the fast path does not work here, the plain one goes on: %s", self.off, exc_info=True)
                return work(arguments)
        return self.recordings[kind](arguments)

    def _early(self, kind: Any) -> bool:
        """Whether it is too early for a line; a change of the weights makes it early again."""
        line = self.recordings.get(kind)
        if isinstance(line, Line) and line.stale():
            del self.recordings[kind]
            self.waited[kind] = 0
        self.waited[kind] += 1
        return self.waited[kind] <= PATIENCE

    def _record(
        self, kind: Any, work: Callable[[Any], tuple[State, StepOutput]], arguments: Any
    ) -> Callable[[Any], tuple[State, StepOutput]]:
        if self.on_cpu:
            return Line(work, arguments, (*self.model.parameters(), *self.model.buffers()))
        here = self.states.setdefault(kind[1], tree_map(torch.clone, arguments[0]))

        def advance(arguments: Any) -> tuple[State, StepOutput]:
            after, output = work(arguments)
            for place, value in zip(leaves(here), leaves(after), strict=True):
                if place.data_ptr() != value.data_ptr():
                    place.copy_(value)
            return here, output

        places = (here, *tree_map(torch.clone, arguments[1:]))
        return Recorded(advance, places, leaves(here), rough=self.precision == "bfloat16")
