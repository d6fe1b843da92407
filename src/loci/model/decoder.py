"""The slot-wise decoder: what times where, to mask and colour logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from loci.config import ModelConfig
from loci.kernels.precision import exact
from loci.model.blocks import Residual, UpBy4
from loci.model.geometry import gaussian, prioritise
from loci.model.state import Code, Layers

TINY = 1e-16
COLOUR_SHIFT = 2.5
"""Colours are sigmoid(logit - 2.5), so that a slot starts dark."""


def colours(colour_logits: Tensor) -> Tensor:
    """What a slot paints."""
    return (colour_logits - COLOUR_SHIFT).sigmoid_()


class Branch(nn.Module):
    """From the trunk to one kind of output, coarse and, on top of it, fine."""

    def __init__(self, channels: int, outputs: int, coarse: bool) -> None:
        super().__init__()
        self.coarse_only = coarse
        self.head = Residual(channels, channels)
        self.coarse = UpBy4(channels, outputs, scale=TINY)
        self.fine_scale = nn.Parameter(torch.tensor([TINY]))
        self.fine = nn.Sequential(
            Residual(channels, channels),
            Residual(channels, channels),
            UpBy4(channels, 4 * outputs, scale=1.0),
            UpBy4(4 * outputs, outputs, scale=1.0),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N,C,h,w] -> [N,out,H,W]."""
        x = self.head(x)
        coarse: Tensor = self.coarse(x)
        if self.coarse_only:
            return coarse
        fine: Tensor = self.fine[-1](self.fine[:-1](x), coarse, self.fine_scale)  # nearest ×4 of coarse + scale · fine
        return fine


class Decoder(nn.Module):
    """One set of weights for all slots."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        channels, coarse = config.decoder.channels, config.resolution == "coarse"
        self.grid = config.grid
        self.trunk = nn.Sequential(
            Residual(config.gestalt, channels, first_relu=False),
            *(Residual(channels, channels) for _ in range(config.decoder.layers - 1)),
        )
        self.mask = Branch(channels, 1, coarse)
        self.colour = Branch(channels, 3, coarse)

    @exact
    def combine(self, code: Code, ordered: bool) -> Tensor:
        """What times where, [B·K,D,h,w]; if ordered, only where no slot in front covers it (Algorithm 2, line 6)."""
        place = gaussian(code.position, self.grid)
        if ordered:
            place = prioritise(place, code.priority)
        return (place[..., None] * code.gestalt[:, :, None, None]).flatten(0, 1).movedim(-1, 1)  # pixels last

    def paint(self, code: Code) -> Tensor:
        """The colour logits alone, [B,K,3,H,W], without depth order: what each slot would look like uncovered."""
        return self.colour(self.trunk(self.combine(code, ordered=False))).unflatten(0, code.priority.shape)

    def both(self, code: Code) -> tuple[Layers, Tensor]:
        """What `forward` and `paint` give, in one go."""
        x = self.trunk(torch.cat((self.combine(code, ordered=True), self.combine(code, ordered=False))))
        batch = code.priority.shape
        colour, uncovered = self.colour(x).chunk(2)
        mask = self.mask(x.chunk(2)[0])
        layers = Layers(mask.squeeze(1).unflatten(0, batch), colour.unflatten(0, batch))
        return layers, uncovered.unflatten(0, batch)

    def forward(self, code: Code, ordered: bool = True) -> Layers:
        """Mask and colour logits of every slot, by default with depth order."""
        x = self.trunk(self.combine(code, ordered))
        batch = code.priority.shape
        return Layers(self.mask(x).squeeze(1).unflatten(0, batch), self.colour(x).unflatten(0, batch))
