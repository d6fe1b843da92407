"""Moving MNIST, the paper's unbiased version: digits cut to their ink bounce exactly, for as many frames as wanted.

A digit's place is a closed form of time, so all frames are made at once, on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from loci import random
from loci.data.clip import OCCLUDED, VISIBLE, Clip
from loci.data.source import Split
from loci.errors import UserError
from loci.worlds import mnist
from loci.worlds.areas import area
from loci.worlds.arguments import check

Protocol = Literal["ink", "box"]

_INK = 128  # a pixel belongs to a digit from half the full brightness on
_HIDDEN = 0.05  # the share below which a digit counts as occluded
_STRIDE = 0.1  # speed in the "box" protocol, in units of the room there is to move
_FASTEST = 4
_MOST = 255


def triangle(start: Tensor, speed: Tensor, room: Tensor, time: Tensor) -> Tensor:
    """Where something is that moves evenly and is reflected exactly at 0 and at `room`; whole numbers, any time."""
    period = (2 * room).clamp_min(1)
    return room - ((start + speed * time) % period - room).abs()


def clamped(start: Tensor, speed: Tensor, time: Tensor) -> Tensor:
    """As `triangle` between 0 and 1, but each step ends at the wall it meets, as the common protocol has it."""
    pace = speed.abs().clamp_min(1e-9)
    distance = torch.where(speed > 0, 1 - start, start)
    first = (distance / pace).ceil().clamp_min(1)  # the step that ends at the first wall
    leg = (1 / pace).ceil()  # steps from wall to wall
    since = (time - first).clamp_min(0)
    gone = ((since % leg) * pace).clamp_max(1)  # distance from the last wall
    upper = (speed > 0) ^ ((since // leg) % 2 == 1)  # that wall is the one at 1
    return torch.where(time < first, start + speed * time, torch.where(upper, 1 - gone, gone))


@dataclass(frozen=True)
class MovingMnist:
    """Digits on black that pass through each other and bounce off the borders.

    `protocol="ink"` is the paper's: each digit cut to its ink, no two of one class (beyond ten digits: of the
    first ten, the second ten, ...), speed per axis a whole number of pixels from 1 to 4 with either sign, anywhere it
    fits, exact reflection, digits added and clipped to 1.
    `protocol="box"` is the other common one (Srivastava et al. 2015): whole 28×28 boxes of any classes, a tenth of the
    room to move per step in any direction, each step cut off at the wall, the brighter digit shows.

    Training and validation digits come from disjoint parts of MNIST's training digits, test digits from its test set.

    Labels: `whole` are a digit's own pixels of at least half brightness; where digits overlap, a pixel is `visible` of
    the brighter one, and of the later one of equals. `position` is the centre of what bounces, the ink or the box.
    """

    split: Split = "train"
    seed: int = 0
    size: tuple[int, int] = (64, 64)
    length: int = 30
    digits: int = 2
    protocol: Protocol = "ink"

    def __post_init__(self) -> None:
        check(self.split, self.size, self.length, 28)
        if self.protocol not in get_args(Protocol):
            raise UserError(f"protocol {self.protocol!r}: choose one of {', '.join(get_args(Protocol))}")
        if not 1 <= self.digits <= _MOST:
            raise UserError(f"digits {self.digits}: choose 1 to {_MOST}")

    def __len__(self) -> int:
        return 2**31

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """A digit's only attribute is its class."""
        return {"class": tuple("0123456789")}

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        index = torch.tensor(list(indices), dtype=torch.int64, device=device)
        keys = random.key("moving mnist", self.seed, self.split, index)
        digits = mnist.digits(self.split, self.protocol == "ink", index.device)
        classes, chosen = self._choose(keys, digits)
        extent = digits.extent[chosen]  # [B,N,2]
        corner = self._corners(keys, extent)  # [B,T,N,2]
        layers = self._layers(digits.cut(chosen), corner)  # [B,T,N,H,W]
        frames = self._add(layers)[:, :, None].expand(-1, -1, 3, -1, -1).contiguous()
        background = frames.new_zeros(len(index), 1, 3, *self.size)
        if not labels:
            return Clip(frames, background, index=index)
        whole = layers >= _INK
        visible = whole & self._on_top(layers)
        share = area(visible) / area(whole).clamp_min(1)
        centre = corner + (extent[:, None] - 1) / 2
        edge = torch.tensor(self.size, device=device) - 1
        return Clip(
            frames,
            background,
            visible=visible,
            whole=whole,
            position=2 * centre / edge - 1,
            share=share,
            state=torch.where(share < _HIDDEN, OCCLUDED, VISIBLE).to(torch.uint8),
            container=torch.full_like(share, -1, dtype=torch.int64),
            attributes={"class": classes},
            index=index,
        )

    def _choose(self, keys: Tensor, digits: mnist.Digits) -> tuple[Tensor, Tensor]:
        """Class and number of each digit, [B,N] each."""
        if self.protocol == "ink":
            rounds = -(-self.digits // 10)
            classes = random.bits(random.fold(keys, "classes"), (rounds, 10)).argsort(-1).flatten(1)[:, : self.digits]
        else:
            classes = random.integers(random.fold(keys, "classes"), 10, (self.digits,))
        drawn = random.integers(random.fold(keys, "digits"), 2**40, (self.digits,))
        return classes, digits.first[classes] + drawn % digits.amount[classes]

    def _corners(self, keys: Tensor, extent: Tensor) -> Tensor:
        """The upper left pixel of each digit in each frame, [B,T,N,2] int64."""
        room = (torch.tensor(self.size, device=keys.device) - extent)[:, None]
        time = torch.arange(self.length, device=keys.device)[:, None, None]
        if self.protocol == "ink":
            start = random.integers(random.fold(keys, "start"), 2**40, (1, self.digits, 2)) % (room + 1)
            pace = 1 + random.integers(random.fold(keys, "pace"), _FASTEST, (1, self.digits, 2))
            sign = 1 - 2 * random.integers(random.fold(keys, "sign"), 2, (1, self.digits, 2))
            return triangle(start, sign * pace, room, time)
        where = random.uniform(random.fold(keys, "start"), (1, self.digits, 2), torch.float64)
        angle = 2 * torch.pi * random.uniform(random.fold(keys, "angle"), (1, self.digits), torch.float64)
        speed = _STRIDE * torch.stack([angle.sin(), angle.cos()], -1)
        return (clamped(where, speed, time) * room).to(torch.int64)

    def _layers(self, crops: Tensor, corner: Tensor) -> Tensor:
        """Each digit alone in each frame, [B,T,N,H,W] uint8."""
        height, width = self.size
        reach = torch.arange(crops.shape[-1], device=crops.device)
        layer = torch.arange(corner.numel() // 2, device=crops.device).reshape(corner.shape[:-1])
        base = (layer * height + corner[..., 0]) * width + corner[..., 1]
        place = base[..., None, None] + reach[:, None] * width + reach
        # A crop reaches past its ink and so perhaps past the frame, into the next row or layer. There it is 0, and 0
        # can be added anywhere; the last layer needs some room behind it.
        behind = crops.shape[-1] * (width + 1)
        flat = crops.new_zeros(corner.numel() // 2 * height * width + behind)
        flat.index_add_(0, place.flatten(), crops[:, None].expand(*place.shape).flatten())
        return flat[:-behind].view(*corner.shape[:-1], height, width)

    def _add(self, layers: Tensor) -> Tensor:
        """The frames in gray, [B,T,H,W] uint8."""
        if self.protocol == "box":
            return layers.amax(2)
        frames = layers[:, :, 0]
        for n in range(1, self.digits):
            frames = frames + torch.minimum(layers[:, :, n], 255 - frames)
        return frames

    def _on_top(self, layers: Tensor) -> Tensor:
        """Where each digit is the brightest, the latest of equals, [B,T,N,H,W]."""
        brightest = layers.amax(2)
        free = torch.ones_like(brightest, dtype=torch.bool)
        on_top = torch.zeros_like(layers, dtype=torch.bool)
        for n in reversed(range(self.digits)):
            on_top[:, :, n] = free & (layers[:, :, n] == brightest)
            free &= ~on_top[:, :, n]
        return on_top
