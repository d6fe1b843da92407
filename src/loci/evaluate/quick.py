"""Loci's recorded steps for one batch size.

Recording takes as long as some hundred plain steps, and holds for one batch size: that of the first batch. Clips that
are left over go through the plain steps, which say the same.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from loci.kernels.fast import FastWatch
from loci.model import Code, Loci, State, StepOutput


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
        return self._for(state).bootstrap(frame, state)

    def step(
        self,
        frame: Tensor,
        state: State,
        *,
        background: Tensor | None = None,
        disturb: Callable[[Code], Code] | None = None,
    ) -> tuple[State, StepOutput]:
        """See a frame."""
        return self._for(state).step(frame, state, background=background, disturb=disturb)

    def imagine(self, state: State, steps: int) -> tuple[State, StepOutput]:
        """Run on in closed loop."""
        return self._for(state).imagine(state, steps)

    def _for(self, state: State) -> Loci | FastWatch:
        """Recorded steps for the batch size that came first, plain ones for any other."""
        size = state.time.shape[0]
        if not self.sizes:
            self.sizes.add(size)
        return self.fast if size in self.sizes else self.model
