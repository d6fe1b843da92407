"""Several processes that train one network: each holds a part of the batch."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from loci.errors import UserError
from loci.model.state import tree_map
from loci.train.step import Learner

PATIENCE = timedelta(seconds=50)
"""How long a process waits for the others before it says that they are gone."""
T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among all of them."""

    rank: int
    world: int
    device: torch.device
    control: Any = field(default=None, repr=False)
    """A group of CPUs to agree in, so that nobody has to wait for a GPU."""

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def entries(self, batch: int) -> range:
        """Which entries of the global batch are here."""
        if batch % self.world:
            raise UserError(f"data.batch is {batch}, which {self.world} processes cannot share evenly")
        share = batch // self.world
        return range(self.rank * share, (self.rank + 1) * share)

    def wrap(self, learner: Learner) -> nn.Module:
        """So that gradients are averaged over all processes."""
        if self.world == 1:
            return learner
        return DistributedDataParallel(learner, find_unused_parameters=True)

    def share(self, gradients: Sequence[Tensor]) -> None:
        """Take the mean of gradients over all processes, in place."""
        if self.world == 1 or not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.world
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(
            list(gradients), [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
        )

    def agree(self, wish: int) -> int:
        """The largest wish of all."""
        if self.world == 1:
            return wish
        shared = torch.tensor([wish])
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.control)
        return int(shared)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes."""
        if self.world == 1:
            return values
        values = values.clone()
        dist.all_reduce(values)
        return values / self.world

    def gather(self, tree: Any) -> Any:
        """A tree of tensors, each joined along the batch over all processes."""
        if self.world == 1:
            return tree

        def whole(tensor: Tensor) -> Tensor:
            parts = [torch.empty_like(tensor.contiguous()) for _ in range(self.world)]
            dist.all_gather(parts, tensor.contiguous())
            return torch.cat(parts)

        return tree_map(whole, tree)

    def leave(self) -> None:
        """Done; whoever shared gradients has to be gone by now.

        A group that is taken down waits for its own thread, which needs the interpreter to let go of its last tensors.
        `destroy_process_group` lends it. A wrapped learner that outlives this call would take the group down without:
        each would wait for the other for ever.
        """
        if self.world > 1:
            gc.collect()
            dist.destroy_process_group()


def choose_device(name: str, local_rank: int) -> torch.device:
    """The device that a config means."""
    if name == "auto":
        name = f"cuda:{local_rank % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"train.device is {name!r}; choose auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"train.device is {name!r}, and there is no GPU here; choose auto or cpu")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"train.device is {name!r}; choose auto, cpu, cuda or cuda:N")
    return device


def meet(device_name: str) -> Processes:
    """Meet the other processes that torchrun has started, if it has."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = choose_device(device_name, int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world == 1:
        return Processes(0, 1, device)
    if "MASTER_ADDR" not in os.environ:
        raise UserError(
            f"WORLD_SIZE is {world}, but nobody says where the others are: start all of them with "
            f"`torchrun --nproc-per-node {world} -m loci train ...`, or take WORLD_SIZE out of the environment"
        )
    # NCCL wants a GPU for each process; where they have to share one, gloo does.
    own = device.type == "cuda" and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        dist.init_process_group("nccl" if own else "gloo", timeout=PATIENCE)
        control = dist.new_group(backend="gloo", timeout=PATIENCE) if device.type == "cuda" else None
    except RuntimeError as error:
        raise LostError(f"process {rank} of {world} has not found the others ({_first_line(error)})") from error
    return Processes(rank, world, device, control)


def together(device_name: str, work: Callable[[Processes], T]) -> T:
    """Meet the others, work, and part; a process that finds the others gone says so."""
    processes = meet(device_name)
    try:
        result = work(processes)
    except BaseException as error:
        if processes.world == 1:
            raise
        traceback.clear_frames(error.__traceback__)  # they hold the wrapped learner; see `leave`
        processes.leave()
        if not _of_others(error):
            raise
        raise LostError(
            f"process {processes.rank} of {processes.world} stopped, most likely because another one has ended "
            f"({_first_line(error)}); `loci train --resume` goes on from the last checkpoint"
        ) from error
    processes.leave()
    return result


def _of_others(error: BaseException) -> bool:
    """Whether this is what a process sees when another one ends; gloo says its name in an error of no special kind."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


class LostError(RuntimeError):
    """Another process has ended, or never came."""
