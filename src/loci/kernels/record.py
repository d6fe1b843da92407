"""Work on the device, compiled and recorded once as a CUDA graph that is then replayed.

A step has a fixed shape and asks the device nothing, so all of its launches can be one. The state lives where the
recording reads and writes it, so nothing is copied from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from loci.model.state import tree_map

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


@contextmanager
def tuned(rough: bool) -> Iterator[None]:
    """For shapes that never change: convolutions by what is measured to be fastest; if rough, products in TF32."""
    cudnn, products = torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = products or rough
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32 = cudnn, products


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

    def __init__(
        self,
        work: Callable[[A], R],
        places: A,
        preserve: Sequence[Tensor] = (),
        pool: Any | None = None,
        rough: bool = False,
    ) -> None:
        """Record.

        Args:
            work: Uses nothing but its argument and tensors that stay where they are.
            places: Where it reads its argument, now and later; it may write there too.
            preserve: What the work changes in place; recording leaves it as it was.
            pool: Memory to share with other recordings whose results are dead when this one runs.
            rough: Whether products may be in TF32.
        """
        self.work = work
        self.arguments = places
        self.places = leaves(places)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.memory = 0
        """The most bytes that tensors took of the GPU in a rehearsal: what the work needs, and all that was there."""
        if self.places[0].is_cuda:
            with tuned(rough):
                self.result = self._record(preserve, pool)

    def _record(self, preserve: Sequence[Tensor], pool: Any | None) -> R:
        kept = [tensor.detach().clone() for tensor in preserve]
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    torch.cuda.reset_peak_memory_stats()
                    self.work(self.arguments)
            self.memory = torch.cuda.max_memory_allocated()
        finally:
            current.wait_stream(stream)
            with torch.no_grad():
                for tensor, value in zip(preserve, kept, strict=True):
                    tensor.copy_(value)
        torch.cuda.empty_cache()  # a recording has memory of its own, and never needs again what the rehearsals took
        graph = torch.cuda.CUDAGraph()
        # Another thread may be making the next batch.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = self.work(self.arguments)
        self.graph = graph
        return result

    def __call__(self, arguments: A) -> R:
        """The work on these numbers."""
        for place, value in zip(self.places, leaves(arguments), strict=True):
            if place is not value:
                place.copy_(value, non_blocking=True)
        if self.graph is None:
            return self.work(self.arguments)
        self.graph.replay()
        return self.result
