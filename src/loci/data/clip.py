"""What a piece of labelled video is: one meaning for every world and every reader.

B batch, T time, N objects (padded to the largest count in the batch), H W pixels. Positions are (row, column), each in
[-1, 1]: pixel i of n sits at 2·i/(n-1) - 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

ABSENT, VISIBLE, OCCLUDED, CONTAINED, CARRIED = range(5)
STATES = ("absent", "visible", "occluded", "contained", "carried")

EVENTS = ("slide", "pick_place", "rotate", "contain", "no_op", "collision", "enter", "leave")


@dataclass(frozen=True)
class Clip:
    """A batch of videos and what is known about them; what is not known is None.

    Attributes:
        frames: [B,T,3,H,W] uint8, RGB.
        background: [B,1,3,H,W] uint8, or [B,T,3,H,W] where it moves.
        visible: [B,T,N,H,W] bool, the pixels where the object is seen. They never overlap.
        whole: [B,T,N,H,W] bool, the pixels it would cover were it alone; `visible` lies inside.
        position: [B,T,N,2] float32, row and column of its centre on screen, also where it is hidden or off screen. In
            CATER (world and files) as its own camera gives them, -1 and 1 at the frame's outer edges: at most half a
            pixel from the rule above.
        world: [B,T,N,3] float32, its centre in the world's own units.
        share: [B,T,N] float32, visible pixels / whole pixels; 0 where there are none.
        state: [B,T,N] uint8, one of ABSENT, VISIBLE, OCCLUDED (present, not contained, share under 0.05; also off
            screen), CONTAINED (inside a container that rests), CARRIED (inside a container that moves).
        container: [B,T,N] int64, the object that directly holds it, or -1.
        events: [B,E,5] int64: kind (an index of EVENTS), first frame, last frame, object, other object or -1. Rows of
            -1 pad.
        attributes: [B,N] int64 each (-1: no such object), by name: "class", "shape", "colour", "material", "size", ...;
            what the numbers mean is `names` of the source.
        index: [B] int64, which clip of its source each one is.
    """

    frames: Tensor
    background: Tensor | None = None
    visible: Tensor | None = None
    whole: Tensor | None = None
    position: Tensor | None = None
    world: Tensor | None = None
    share: Tensor | None = None
    state: Tensor | None = None
    container: Tensor | None = None
    events: Tensor | None = None
    attributes: Mapping[str, Tensor] = field(default_factory=dict)
    index: Tensor | None = None

    def _map(self, change: Callable[[Tensor], Tensor]) -> Clip:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "attributes"}
        moved: dict[str, Any] = {name: value if value is None else change(value) for name, value in values.items()}
        return dataclasses.replace(
            self, **moved, attributes={name: change(value) for name, value in self.attributes.items()}
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Clip:
        """The same clip on another device."""
        return self._map(lambda value: value.to(device, non_blocking=non_blocking))

    def __getitem__(self, entries: slice | Tensor) -> Clip:
        """Some of the batch."""
        return self._map(lambda value: value[entries])

    @property
    def batch(self) -> int:
        """The number of videos."""
        return self.frames.shape[0]

    @property
    def length(self) -> int:
        """The number of frames."""
        return self.frames.shape[1]
