"""Slots and background compete for every pixel, and together make the frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loci.config import ModelConfig
from loci.model.decoder import colours
from loci.model.state import Layers


class Compose(nn.Module):
    """The background's share of the competition: a learnable logit for every pixel, and how far it is shown yet."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.shrink = 4 if config.resolution == "coarse" else 1
        self.background_logit = nn.Parameter(torch.ones(config.height, config.width))
        self.background_growth: Tensor
        self.register_buffer("background_growth", torch.zeros(1))  # the trainer's: 0 in the warm-up, then it grows

    def shown(self) -> Tensor:
        """b, the brightness of the background: 0 (black) during the warm-up, then towards 1."""
        return torch.tanh(self.background_growth / 2)

    def masks(self, mask_logits: Tensor) -> Tensor:
        """[B,K,H,W] -> [B,K+1,H,W], the background last (Algorithm 1, line 25)."""
        logit = self.background_logit[None, None]
        logit = F.avg_pool2d(logit, self.shrink) if self.shrink > 1 else logit
        return torch.softmax(torch.cat((mask_logits, logit.expand(mask_logits.shape[0], -1, -1, -1)), 1), 1)

    def forward(self, layers: Layers, background: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predicted frame [B,3,H,W], the masks [B,K+1,H,W] and the slots' colours [B,K,3,H,W]."""
        masks, painted = self.masks(layers.mask_logits), colours(layers.colour_logits)
        slots = (masks[:, :-1, None] * painted).sum(1)
        return slots + masks[:, -1:] * background * self.shown(), masks, painted
