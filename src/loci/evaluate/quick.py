"""Loci's steps recorded on a GPU, behind the same verbs.

Recording takes about as long as some hundred steps, and holds for one batch size: that of the first batch. Clips that
are left over go through the plain steps, which say the same.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from loci.kernels.fast import FastWatch
from loci.model import Loci, State, StepOutput
from loci.model.frames import as_frame
from loci.model.state import tree_map


class Quick:
    """Loci through `FastWatch`. What a step returns is overwritten by the next: copy what is kept."""

    def __init__(self, model: Loci, fast: FastWatch | None = None) -> None:
        self.model, self.size, self.config = model, model.size, model.config
        self.fast = FastWatch(model) if fast is None else fast
        self.sizes: set[int] = set()

    def start(
        self, batch: int = 1, background: Tensor | None = None, *, seed: int = 0, keys: Tensor | None = None
    ) -> State:
        """As Loci does."""
        return self.model.start(batch, background, seed=seed, keys=keys)

    def bootstrap(self, frame: Tensor, state: State) -> State:
        """As Loci does."""
        return self.model.bootstrap(frame, state)

    def step(
        self, frame: Tensor, state: State, *, background: Tensor | None = None, disturb: Any = None
    ) -> tuple[State, StepOutput]:
        """See a frame; a disturbed step is a plain one."""
        if disturb is not None or not self._usual(state):
            return self.model.step(frame, state, background=background, disturb=disturb)
        if background is not None:
            state = state._replace(background=as_frame(background, self.model.dtype, self.model.device))
        return self.fast(frame, state)

    def dream(self, state: State) -> tuple[State, StepOutput]:
        """One step in closed loop."""
        if self._usual(state):
            return self.fast.imagine(state)
        state, outputs = self.model.imagine(state, 1)
        return state, tree_map(lambda x: x[:, 0], outputs)

    def _usual(self, state: State) -> bool:
        """Whether this is the batch size that is recorded; the first one is."""
        size = state.time.shape[0]
        if not self.sizes:
            self.sizes.add(size)
        return size in self.sizes
