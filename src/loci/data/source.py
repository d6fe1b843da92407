"""Where clips come from: endless worlds and folders of files look the same to training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import torch

from loci.data.clip import Clip

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


class Source(Protocol):
    """A numbered collection of clips of one size and length."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the frames."""
        ...

    @property
    def length(self) -> int:
        """Frames in a clip."""
        ...

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """For each attribute, what its numbers mean."""
        ...

    def __len__(self) -> int:
        """The number of clips; an endless world says 2**31."""
        ...

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order; without labels only frames, background and index are filled in."""
        ...
