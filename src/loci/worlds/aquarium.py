"""An aquarium: many fish that look alike or do not, before water, light and plants that never stand still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from loci import random
from loci.data.clip import OCCLUDED, VISIBLE, Clip
from loci.data.source import Split
from loci.errors import UserError
from loci.worlds import aquarium_canvas as canvas
from loci.worlds.aquarium_paint import paint
from loci.worlds.aquarium_species import SPECIES, Looks, looks
from loci.worlds.aquarium_swim import Fish, Pose, cast, longest, swim
from loci.worlds.aquarium_tank import LAYERS, Tank, furnish
from loci.worlds.aquarium_water import fill
from loci.worlds.areas import area
from loci.worlds.arguments import check

RATE = 25
"""Frames per second."""

_HIDDEN = 0.05  # the share below which a fish counts as occluded
_PIXELS_AT_ONCE = {"cpu": 1_000_000, "cuda": 3_000_000}  # frames of this many pixels are painted together
_GRAINS = 10  # bits of each of the two uniform numbers in a grain of noise


class _Drawn(NamedTuple):
    """Frames of any clips, one after the other."""

    frames: Tensor
    background: Tensor
    visible: Tensor
    whole: Tensor


@dataclass(frozen=True)
class Aquarium:
    """Fish of eight species before a background that moves; a third of them are a school of one kind.

    Fish swim, turn, cross and hide behind plants and each other; their bodies bend and their fins beat. The water's
    level rises and falls, caustics wander, plants sway, the light changes slowly, and the camera has noise.

    `background` is the tank without fish, with plants, for every frame, free of noise. `world` is x and y in half the
    frame's height from its middle, y up, and z from 0 at the glass to 1 at the back. Fish are numbered from the back to
    the front. `position` is the middle of the body between its nose and the root of its tail.
    """

    split: Split = "train"
    seed: int = 0
    size: tuple[int, int] = (240, 320)
    length: int = 250
    fish: int = 18
    noise: float = 2.5
    """Standard deviation of the camera's noise, of 255."""

    def __post_init__(self) -> None:
        check(self.split, self.size, self.length, 24)
        if not 1 <= self.fish <= 100:
            raise UserError(f"fish {self.fish}: choose 1 to 100")
        if not 0 <= self.noise <= 50:
            raise UserError(f"noise {self.noise}: choose 0 to 50 (of 255)")
        if not 0.75 <= self.size[1] / self.size[0] <= 4:
            raise UserError(f"size {self.size}: the tank is between 0.75 and 4 times as wide as high")

    def __len__(self) -> int:
        return 2**31

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """A fish's class is its species."""
        return {"class": tuple(SPECIES)}

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        index = torch.tensor(list(indices), dtype=torch.int64, device=device)
        keys = random.key("aquarium", self.seed, self.split, index)
        height, width = self.size
        tank = furnish(random.fold(keys, "tank"), self.size)
        fish = cast(random.fold(keys, "fish"), self.fish, width / height)
        clip = torch.arange(len(index), device=device).repeat_interleave(self.length)
        number = torch.arange(self.length, device=device).repeat(len(index))
        together = max(1, _PIXELS_AT_ONCE[index.device.type] // (height * width))
        drawn: list[Tensor] = []
        for first in range(0, len(clip), together):
            which, when = clip[first : first + together], number[first : first + together]
            part = self._draw(keys[which], tank.at(which), fish.at(which), when, labels)
            # Room for all at once: to keep the parts and join them would take twice as much.
            drawn = drawn or [value.new_empty(len(clip), *value.shape[1:]) for value in part]
            for everything, value in zip(drawn, part, strict=True):
                everything[first : first + together] = value
        frames, background, visible, whole = (value.unflatten(0, (len(index), self.length)) for value in drawn)
        if not labels:
            return Clip(frames, background, index=index)
        share = area(visible) / area(whole).clamp_min(1)
        world = swim(fish.at(clip), number / RATE).place.unflatten(0, (len(index), self.length))
        x, y, _ = world.unbind(-1)
        return Clip(
            frames,
            background,
            visible=visible,
            whole=whole,
            position=torch.stack([-y * height / (height - 1), x * height / (width - 1)], -1),
            world=world,
            share=share,
            state=torch.where(share < _HIDDEN, OCCLUDED, VISIBLE).to(torch.uint8),
            container=torch.full_like(share, -1, dtype=torch.int64),
            attributes={"class": fish.species},
            index=index,
        )

    def _draw(self, keys: Tensor, tank: Tank, fish: Fish, number: Tensor, labels: bool) -> _Drawn:
        """Some frames: tank, then fish from the back to the front."""
        time = number / RATE
        water = fill(tank, time, self.size)
        picture = water.picture.clone()
        count = self.fish if labels else 0
        pixels = self.size[0] * self.size[1] + 1
        owner = torch.full((len(time), 1, pixels), -1, dtype=torch.int64, device=time.device)
        whole = torch.zeros(len(time), count, pixels, dtype=torch.bool, device=time.device)
        pose, look = swim(fish, time), looks(fish.species)
        layers = torch.tensor(LAYERS, device=time.device)
        for n in range(self.fish):
            hidden = (layers < fish.centre[:, n, 2:]).sum(-1)
            painted = paint(
                picture,
                water,
                Looks(*(value[:, n] for value in look)),
                fish.hue[:, n],
                fish.length[:, n],
                Pose(*(value[:, n] for value in pose)),
                hidden,
                longest(n, self.fish),
                self.size,
            )
            if labels:
                canvas.write(whole[:, n : n + 1], painted.where, painted.whole[:, None])
                before = canvas.read(owner, painted.where)
                canvas.write(owner, painted.where, torch.where(painted.visible[:, None], n, before))
        numbers = torch.arange(count, device=time.device)[:, None, None]
        return _Drawn(
            self._expose(canvas.pictures(picture, self.size), random.fold(random.fold(keys, "noise"), number)),
            (canvas.pictures(water.picture, self.size).clamp(0, 1) * 255).round().to(torch.uint8),
            canvas.pictures(owner, self.size) == numbers,
            canvas.pictures(whole, self.size),
        )

    def _expose(self, light: Tensor, keys: Tensor) -> Tensor:
        """Pictures with the camera's noise: per colour the sum of two uniform numbers, all from one hash per pixel."""
        bits = random.bits(keys, self.size)
        mask = (1 << _GRAINS) - 1
        grains = torch.stack([((bits >> shift) & mask) + ((bits >> shift + _GRAINS) & mask)
                              for shift in (0, 2 * _GRAINS, 4 * _GRAINS)], 1)  # fmt: skip
        noise = (grains - mask) * (self.noise * 6**0.5 / (mask + 1))
        return (light.clamp(0, 1) * 255 + noise).round().clamp(0, 255).to(torch.uint8)
