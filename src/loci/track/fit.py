"""Between a video's own pixels and a network's: the picture is scaled, or scaled and framed, and results come back.

Two conventions meet here. A network's position is (row, column) in [-1, 1] with pixel i of n at 2i/(n-1) - 1. A pixel
position is (row, column) with pixel i at i, so that a picture of n pixels reaches from -1/2 to n - 1/2 and scaling it
by s moves x to s (x + 1/2) - 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from loci.errors import UserError

Array = NDArray[np.floating]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Fit:
    """How a video of one size is put into a network of another.

    Attributes:
        video: height and width of the video.
        network: height and width of the frames the network takes.
        letterbox: keep the shape of things and leave black bars, instead of stretching. The background gets the same
            bars, so the network sees nothing there.
        negative: the network was trained on negatives, and gets them.
    """

    video: tuple[int, int]
    network: tuple[int, int]
    letterbox: bool = True
    negative: bool = False

    def __post_init__(self) -> None:
        if min(*self.video, *self.network) < 1:
            raise UserError(f"sizes must be positive, not video {self.video} and network {self.network}")

    @classmethod
    def of(
        cls, video: tuple[int, int], network: tuple[int, int], letterbox: bool | None = None, negative: bool = False
    ) -> Fit:
        """With bars, or stretched; unless told, bars only where stretching would change shapes by a tenth or more."""
        change = (video[0] * network[1]) / max(1, video[1] * network[0])
        return cls(video, network, not 0.9 < change < 1.1 if letterbox is None else letterbox, negative)

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width of the picture inside the network's frame."""
        if not self.letterbox:
            return self.network
        scale = min(n / v for n, v in zip(self.network, self.video, strict=True))
        height, width = (max(1, min(n, round(v * scale))) for n, v in zip(self.network, self.video, strict=True))
        return height, width

    @property
    def offset(self) -> tuple[int, int]:
        """Rows above and columns left of the picture inside the network's frame."""
        return (self.network[0] - self.inner[0]) // 2, (self.network[1] - self.inner[1]) // 2

    @property
    def scale(self) -> Array:
        """Video pixels for one of the network's, along rows and columns."""
        return np.array(self.video, float) / np.array(self.inner, float)

    def shrink(self, pixels: Pixels) -> Pixels:
        """The network's frame [h,w,3] from the video's [H,W,3] (or any number of channels)."""
        (h, w), (top, left) = self.inner, self.offset
        method = cv2.INTER_AREA if h <= self.video[0] and w <= self.video[1] else cv2.INTER_LINEAR
        small = pixels if pixels.shape[:2] == (h, w) else np.asarray(cv2.resize(pixels, (w, h), interpolation=method))
        if (h, w) == self.network:
            return self.turned(small)
        framed = np.zeros((*self.network, *pixels.shape[2:]), np.uint8)
        framed[top : top + h, left : left + w] = small
        return self.turned(framed)

    def turned(self, pixels: Pixels) -> Pixels:
        """The network's colours from true ones, and true ones from the network's."""
        return 255 - pixels if self.negative else pixels

    def to_pixels(self, position: Array) -> Array:
        """Rows and columns in the video's pixels from (row, column) in [-1, 1]; [..., 2] both."""
        inside = (np.asarray(position, float) + 1) / 2 * (np.array(self.network) - 1) - np.array(self.offset)
        return (inside + 0.5) * self.scale - 0.5

    def to_network(self, position: Array) -> Array:
        """The other way: (row, column) in [-1, 1] from rows and columns in the video's pixels."""
        inside = (np.asarray(position, float) + 0.5) / self.scale - 0.5 + np.array(self.offset)
        return 2 * inside / np.maximum(np.array(self.network) - 1, 1) - 1

    def radius(self, sigma: Array) -> Array:
        """The standard deviation, in the video's pixels, of the Gaussian a network makes of σ."""
        one = (1 + max(self.network) * np.clip(sigma, 0, 1)) / 2
        return one * float(np.sqrt(self.scale.prod()))

    def boxes_to_pixels(self, boxes: Array) -> Array:
        """(left, top, width, height) in the video's pixels from the network's, as counts of whole pixels; [..., 4]."""
        scale, offset = np.tile(self.scale[::-1], 2), np.array([*self.offset[::-1], 0, 0])
        return (np.asarray(boxes, float) - offset) * scale

    def enlarge(self, maps: Tensor) -> Tensor:
        """Maps [...,H,W] over the video from the network's [...,h,w]: bars cut off, bilinear between pixels."""
        (h, w), (top, left) = self.inner, self.offset
        inside = maps[..., top : top + h, left : left + w]
        if (h, w) == self.video:
            return inside
        flat = inside.reshape(1, -1, h, w).float()
        large = F.interpolate(flat, self.video, mode="bilinear", align_corners=False)
        return large.reshape(*maps.shape[:-2], *self.video)

    def labels(self, masks: Tensor) -> NDArray[np.uint8]:
        """Which of the network's masks [K+1,h,w] has each pixel of the video, from 1; 0 for the last, the background.

        Only slots that may win somewhere are enlarged: a pixel's largest share is 1 / (K+1) at least.
        """
        (h, w), (top, left) = self.inner, self.offset
        inside = masks[:, top : top + h, left : left + w].float().numpy()
        least = 1 / len(inside)
        best = cv2.resize(np.ascontiguousarray(inside[-1]), self.video[::-1], interpolation=cv2.INTER_LINEAR)
        labels = np.zeros(self.video, np.uint8)
        for slot in np.flatnonzero(inside[:-1].max((1, 2)) >= least):
            large = cv2.resize(np.ascontiguousarray(inside[slot]), self.video[::-1], interpolation=cv2.INTER_LINEAR)
            mine = large > best
            labels[mine] = slot + 1
            best[mine] = large[mine]
        return labels


def tensor(pixels: Pixels) -> Tensor:
    """[3,h,w] uint8 for the network, from [h,w,3]."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).contiguous()
