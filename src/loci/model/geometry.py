"""Coordinates, and everything that is drawn from them.

A position is (row, column), each in [-1, 1]: pixel i of n sits at 2·i/(n-1) - 1. Row first. A third entry, sigma, is
the size of the object; at 0 it is about one pixel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from loci.kernels.precision import exact
from loci.kernels.shift import Shift


def coordinates(count: int, like: Tensor) -> Tensor:
    """The positions of `count` pixels in a line."""
    return torch.linspace(-1, 1, count, dtype=like.dtype, device=like.device)


def gaussian_profiles(position: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The two factors of a Gaussian map, along rows [...,H] and along columns [...,W]; position [...,3]."""
    height, width = size
    row, column = position[..., 0:1].clamp(-1, 1), position[..., 1:2].clamp(-1, 1)
    spread = 1 + max(height, width) * position[..., 2:3].clamp(0, 1)
    down = torch.exp(-(((coordinates(height, position) - row) * height / spread) ** 2) / 2)
    across = torch.exp(-(((coordinates(width, position) - column) * width / spread) ** 2) / 2)
    return down, across


def gaussian(position: Tensor, size: tuple[int, int]) -> Tensor:
    """An isotropic Gaussian Q around each position [...,3], as a map [...,H,W] (Algorithm 1, line 21)."""
    down, across = gaussian_profiles(position, size)
    return down[..., :, None] * across[..., None, :]


def prioritise(maps: Tensor, priority: Tensor) -> Tensor:
    """What of each slot's Gaussian the slots in front of it leave over, Q' (Algorithm 2, line 5).

    maps [B,K,H,W], priority [B,K]. The higher priority wins; the algorithm's printed formula has the opposite sign, its
    text and the published code this one.
    """
    slots = maps.shape[1]
    in_front = torch.sigmoid(priority[:, None, :] - priority[:, :, None])
    others = 1 - torch.eye(slots, dtype=maps.dtype, device=maps.device)
    return torch.relu(maps - ((in_front * others) @ maps.flatten(2)).view_as(maps))


def soft_argmax(scores: Tensor) -> Tensor:
    """The expected position [N,2] under a softmax over a whole map [N,H,W]."""
    share = torch.softmax(scores.flatten(1), 1).view_as(scores)
    row = (share.sum(2) * coordinates(scores.shape[1], scores)).sum(1)
    column = (share.sum(1) * coordinates(scores.shape[2], scores)).sum(1)
    return torch.stack((row, column), 1)


@exact
def centre(images: Tensor, position: Tensor) -> Tensor:
    """Shift each picture so that its position [...,2+] comes to the middle; zero flows in from outside.

    A shift of position·n/2 pixels, bilinear. Bilinear interpolation of a pure shift is a weighted sum of two neighbours
    along each axis, so it is done as two small matrix products; on a GPU, where large maps make them dear, as reads.
    """
    if images.is_cuda:
        shifted: Tensor = Shift.apply(images, position)
        return shifted
    height, width = images.shape[-2:]
    down = _shift_matrix(position[..., 0], height)
    across = _shift_matrix(position[..., 1], width)
    return torch.einsum("...yr,...crx->...cyx", down, torch.einsum("...crw,...xw->...crx", images, across))


def _shift_matrix(position: Tensor, count: int) -> Tensor:
    """Weights [...,count,count] with which output pixel i takes input pixel j at i + position·count/2."""
    index = torch.arange(count, dtype=position.dtype, device=position.device)
    source = index + position[..., None] * count / 2
    return torch.relu(1 - (source[..., :, None] - index).abs())
