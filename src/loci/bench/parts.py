"""Which part of a step time, arithmetic and memory traffic go to."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

PARTS = ("seed", "encoder", "transition", "decoder", "compose", "losses", "backward", "optimiser", "other")
"""In this order; `backward` has the gradient's length too, `other` is what lies between the parts."""


class Clock:
    """Exclusive time by part: entering one stops the one around it."""

    def __init__(self, device: torch.device, base: str) -> None:
        self.device = device
        self.within = [base]
        self.marks: list[tuple[str, Any]] = []
        self.mark()

    @property
    def part(self) -> str:
        """The innermost part that is running."""
        return self.within[-1]

    def mark(self) -> None:
        """From here on, time belongs to the part that runs now; on a GPU, without waiting for it."""
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append((self.part, event))
        else:
            self.marks.append((self.part, time.perf_counter()))

    def within_part(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time given to a part."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.within.append(part)
            self.mark()
            try:
                return function(*args, **kwargs)
            finally:
                self.within.pop()
                self.mark()

        return run

    def spent(self) -> dict[str, float]:
        """Milliseconds by part so far."""
        self.mark()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        total = dict.fromkeys(PARTS, 0.0)
        for (part, begin), (_, end) in itertools.pairwise(self.marks):
            total[part] += begin.elapsed_time(end) if self.device.type == "cuda" else 1e3 * (end - begin)
        return total


@contextmanager
def watched(clock: Clock, methods: list[tuple[Any, str, str]]) -> Iterator[None]:
    """For a while, the methods (owner, name, part) of these objects tell the clock."""
    for owner, name, part in methods:
        setattr(owner, name, clock.within_part(part, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, _ in methods:
            delattr(owner, name)  # the class's own comes back


@dataclass
class Load:
    """What a part asks of a machine."""

    flops: float = 0.0
    """Additions and multiplications in convolutions and matrix products."""
    bytes: float = 0.0
    """Read and written by all operators together, each for itself."""
    operators: int = 0
    """Launches, if nothing is fused."""


class Counter(TorchDispatchMode):
    """Counts what every operator does, for the part in which it does it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.loads: dict[str, Load] = defaultdict(Load)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run it and count it."""
        kwargs = kwargs or {}
        with self:  # in inference mode operators arrive that others make up
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        result = func(*args, **kwargs)
        load = self.loads[self.clock.part]
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            load.flops += formula(*args, **kwargs, out_val=result)
        given, made = (_tensors(tree) for tree in ((args, kwargs), result))
        places = {tensor.data_ptr() for tensor in given}
        if not made or any(tensor.data_ptr() not in places for tensor in made) or func._schema.is_mutable:
            load.operators += 1
            load.bytes += sum(tensor.numel() * tensor.element_size() for tensor in (*given, *made))
        return result


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
