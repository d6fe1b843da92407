"""A source of files some of which turn out to be damaged while they are read: they are left out, and counted.

Opening a folder looks at every file's head and index; a frame damaged in the middle shows only when it is decoded, and
one such file should not end an evaluation of hours.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from loci.data.batch import readable
from loci.data.clip import Clip
from loci.data.source import Source
from loci.errors import UserError

log = logging.getLogger(__name__)


class UnreadableError(UserError):
    """None of some clips can be read."""


@dataclass(frozen=True)
class Careful:
    """A source without its damaged clips.

    Attributes:
        source: Where clips come from.
        faults: What could not be read and why, each once; several readers may share it.
        silent: Leave it at that, and do not log it.
    """

    source: Source
    faults: dict[str, None] = field(default_factory=dict)
    silent: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self.source.size

    @property
    def length(self) -> int:
        """Frames in a clip."""
        return self.source.length

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """For each attribute, what its numbers mean."""
        return self.source.names

    def __len__(self) -> int:
        return len(self.source)

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """Those of these clips that can be read, in this order.

        Raises:
            UnreadableError: none can.
        """
        clip, faults = readable(self.source, indices, labels=labels, device=device)
        # With their numbers: a file that is cut off gives the same reason for every clip behind the cut.
        named = [f"clip {n}: {fault}" for n, fault in faults.items()]
        for fault in named:
            if fault not in self.faults and not self.silent:
                log.warning("left out: %s", fault)
            self.faults[fault] = None
        if clip is None:
            raise UnreadableError(named[0])
        return clip
