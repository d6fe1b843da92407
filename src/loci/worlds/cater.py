"""The CATER world: clips that play by CATER's rules, seen by its camera, with all that its files do not say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loci import random
from loci.data.cater_geometry import CELLS, REACH, project, snitch_class
from loci.data.clip import ABSENT, CARRIED, CONTAINED, OCCLUDED, VISIBLE, Clip
from loci.data.source import Split
from loci.worlds.areas import area
from loci.worlds.arguments import check
from loci.worlds.cater_scene import carried, draw, events, holders, to_json
from loci.worlds.cater_script import LENGTH, SIZES, Script, write
from loci.worlds.render import Rendering, render
from loci.worlds.render_light import NEAR
from loci.worlds.scene import COLOURS, MATERIALS, SHAPES

HIDDEN_BELOW = 0.05
"""An object of which a smaller share is seen counts as occluded."""


@dataclass(frozen=True)
class Cater:
    """Endless CATER: 5 to 10 objects slide, are lifted, turn and hide one another; the first is the snitch.

    Attributes:
        split: "train", "val" or "test"; no clip is in two.
        seed: Another seed, another world.
        size: Height and width of the frames.
        length: Frames of a clip; shorter clips are the beginning of the published length's 301.
        jitter: Move each near lamp by up to one unit along each axis, anew for each clip, as CLEVR does.
    """

    split: Split = "train"
    seed: int = 0
    size: tuple[int, int] = (240, 320)
    length: int = LENGTH
    jitter: bool = False

    def __post_init__(self) -> None:
        check(self.split, self.size, self.length, 8)

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """For each attribute, what its numbers mean."""
        low = [int(cell - REACH) for cell in range(CELLS)]
        return {
            "shape": SHAPES,
            "colour": tuple(COLOURS),
            "material": MATERIALS,
            "size": tuple(SIZES),
            "snitch_class": tuple(f"x {x}..{x + 1}, y {y}..{y + 1}" for y in low for x in low),
        }

    def __len__(self) -> int:
        """As many as an index can name."""
        return 2**31

    def scripts(self, indices: Sequence[int], length: int | None = None) -> list[Script]:
        """What happens in these clips, before they are drawn."""
        return [write(self.seed, self.split, int(index), length or self.length) for index in indices]

    def scenes(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """These clips as CATER's scene files."""
        return [
            to_json(script, int(index), self.size) for script, index in zip(self.scripts(indices), indices, strict=True)
        ]

    def clips(
        self,
        indices: Sequence[int],
        *,
        labels: bool = True,
        device: torch.device | str = "cpu",
        length: int | None = None,
    ) -> Clip:
        """These clips, or their first `length` frames."""
        scripts = self.scripts(indices, length)
        scene = draw(scripts, device, self._lights(indices) if self.jitter else None)
        drawn = render(scene, self.size, labels=labels)
        clip = Clip(drawn.frames, drawn.background, index=torch.tensor([int(i) for i in indices], device=device))
        return dataclasses.replace(clip, **truth(scripts, drawn, device)) if labels else clip

    def _lights(self, indices: Sequence[int]) -> Tensor:
        keys = random.key("cater lights", self.seed, self.split, torch.tensor([int(i) for i in indices]))
        return 2 * random.uniform(keys, (NEAR, 3)) - 1


def truth(scripts: Sequence[Script], drawn: Rendering, device: torch.device | str) -> dict[str, Any]:
    """Everything about some clips but their pictures: the other fields of `Clip`."""
    if drawn.visible is None or drawn.whole is None:
        raise ValueError("the truth about what is seen needs masks: render with labels")
    batch, frames, most = drawn.visible.shape[:3]
    world = torch.zeros(batch, frames, most, 3, dtype=torch.float64)
    state = torch.full((batch, frames, most), ABSENT, dtype=torch.uint8)
    container = torch.full((batch, frames, most), -1)
    lists = [events(script, frames) for script in scripts]
    table = torch.full((batch, max(map(len, lists)), 5), -1)
    choices_of = {"shape": SHAPES, "colour": tuple(COLOURS), "material": MATERIALS, "size": tuple(SIZES)}
    attributes = {name: torch.full((batch, most), -1) for name in (*choices_of, "snitch_class")}
    for b, script in enumerate(scripts):
        n = len(script.things)
        world[b, :, :n] = torch.from_numpy(script.places.swapaxes(0, 1).copy())
        held = holders(script)
        container[b, :, :n] = torch.from_numpy(held)
        state[b, :, :n] = VISIBLE
        state[b, :, :n][torch.from_numpy(held >= 0)] = CONTAINED
        state[b, :, :n][torch.from_numpy(carried(script, held))] = CARRIED
        if lists[b]:
            table[b, : len(lists[b])] = torch.tensor(lists[b])
        for name, choices in choices_of.items():
            attributes[name][b, :n] = torch.tensor([choices.index(getattr(thing, name)) for thing in script.things])
        attributes["snitch_class"][b, 0] = snitch_class(world[b, -1, 0])
    share = area(drawn.visible) / area(drawn.whole).clamp(min=1)
    state = state.to(device)
    state[(state == VISIBLE) & (share < HIDDEN_BELOW)] = OCCLUDED
    return {
        "visible": drawn.visible,
        "whole": drawn.whole,
        "position": project(world).to(device, torch.float32),
        "world": world.to(device, torch.float32),
        "share": share,
        "state": state,
        "container": container.to(device),
        "events": table.to(device),
        "attributes": {name: value.to(device) for name, value in attributes.items()},
    }
