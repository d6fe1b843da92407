"""Where slots look that have not claimed an object: at the start and in search; and the map of what was missed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from loci.config import SearchConfig
from loci.kernels.precision import exact
from loci.model.geometry import gaussian_profiles
from loci.model.state import Code

INDEX_PRIORITY = 25.0
"""A slot that starts has this times its index as priority, which orders the slots (theta_w of Algorithm 2)."""


def difference(frame: Tensor, other: Tensor) -> Tensor:
    """Mean squared error over the colours, [B,1,H,W]."""
    return ((frame - other) ** 2).mean(1, keepdim=True)


def error_map(frame: Tensor, predicted: Tensor, background: Tensor) -> Tensor:
    """E = sqrt(mean((I - bg)²)) · fourth root of mean((I - prediction)²), [B,1,H,W] (Algorithm 1, line 7)."""
    return torch.sqrt(difference(frame, background)) * difference(frame, predicted) ** 0.25


def candidate_scores(error: Tensor, places: Tensor) -> Tensor:
    """How much error lies under a Gaussian of one pixel at each place; [B,1,H,W], [B,K,N,2] -> [B,K,N]."""
    position = torch.cat((places, torch.zeros_like(places[..., :1])), -1)
    down, across = gaussian_profiles(position.flatten(1, 2), (error.shape[2], error.shape[3]))
    return ((down @ error[:, 0]) * across).sum(-1).view(places.shape[:3])


def first_best(scores: Tensor) -> Tensor:
    """Which of the last dimension is largest; of equals (nothing missed anywhere) the first, on every device."""
    count = scores.shape[-1]
    place = torch.arange(count, device=scores.device)
    return torch.where(scores == scores.amax(-1, keepdim=True), place, count - 1).amin(-1)


class Seed(nn.Module):
    """The learnable start of a slot, and the search for something to claim."""

    def __init__(self, gestalt: int, config: SearchConfig) -> None:
        super().__init__()
        self.guided = config.guided
        self.invisible = config.invisible
        self.gestalt_mean = nn.Parameter(torch.zeros(gestalt))
        self.gestalt_std = nn.Parameter(torch.ones(gestalt))
        self.sigma = nn.Parameter(torch.zeros(1))
        self.register_buffer("threshold", torch.tensor([0.5]))
        self.threshold: Tensor

    def searching(self, claimed: Tensor, visible: Tensor) -> Tensor:
        """Which slots [B,K] are to be drawn again: those whose mask never exceeded the threshold."""
        lost = claimed <= self.threshold
        return lost | (visible <= self.threshold) if self.invisible else lost

    def draw(self, error: Tensor, places: Tensor, normals: Tensor) -> Code:
        """New slots at the candidate place [B,K,N,2] with the most error; Gestalt from standard normals [B,K,D]."""
        best = (
            first_best(candidate_scores(error, places)) if self.guided else torch.zeros_like(places[..., 0, 0]).long()
        )
        place = places.gather(2, best[..., None, None].expand(-1, -1, 1, 2)).squeeze(2)
        batch, slots = best.shape
        return Code(
            position=torch.cat((place, self.sigma.expand(batch, slots, 1)), -1),
            gestalt=torch.sigmoid(self.gestalt_mean + self.gestalt_std * normals),
            priority=(INDEX_PRIORITY * torch.arange(slots, device=place.device, dtype=place.dtype)).expand(batch, -1),
        )

    @exact
    def forward(self, code: Code, search: Tensor, error: Tensor, places: Tensor, normals: Tensor) -> Code:
        """The slots after search: drawn again where `search` [B,K] says so."""
        drawn = self.draw(error, places, normals)
        return Code(
            torch.where(search[..., None], drawn.position, code.position),
            torch.where(search[..., None], drawn.gestalt, code.gestalt),
            torch.where(search, drawn.priority, code.priority),
        )
