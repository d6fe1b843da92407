"""The slot-wise encoder: from what a slot sees to what and where its object is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from loci.config import FEATURES, Feature, ModelConfig
from loci.kernels.precision import exact
from loci.kernels.stride import pixels_last, pooled_by_4, stride_conv
from loci.model.blocks import DownBy4, Residual, ToVector
from loci.model.geometry import gaussian, prioritise, soft_argmax
from loci.model.state import Code

CHANNELS: dict[Feature, int] = dict(zip(FEATURES, (3, 1, 1, 1, 1, 3, 1, 1), strict=True))
TWELVE = sum(CHANNELS.values())


class View(NamedTuple):
    """What slots see, as far as they share it and as far as it is each slot's own.

    The twelve channels of a slot are sums and differences of these: what the others have is what all have less its own.
    """

    shared: Tensor
    """[B,7,H,W] frame, error, background mask, all slots' masks, all slots' prioritised Gaussians."""
    own: Tensor
    """[B,K,3,H,W] mask, Gaussian, prioritised Gaussian."""
    colours: Tensor
    """[B,K,3,H,W] logits, the only ones with a gradient."""


@exact
def view_parts(frame: Tensor, error: Tensor, masks: Tensor, colour_logits: Tensor, code: Code) -> View:
    """What the slots see: masks of the previous step, colours and Gaussians of the slots after search.

    Only the colour logits carry a gradient: they lead to the decoder and, through slots that were just drawn, to the
    start of a slot.
    """
    slots = code.priority.shape[1]
    position, priority = code.position.detach(), code.priority.detach()
    own, background = masks[:, :slots], masks[:, slots:]
    place = gaussian(position, (frame.shape[2], frame.shape[3]))
    in_front = prioritise(place, priority)
    everyone = (own.sum(1, keepdim=True), in_front.sum(1, keepdim=True))
    return View(
        shared=torch.cat((frame, error, background, *everyone), 1),
        own=torch.stack((own, place, in_front), 2),
        colours=colour_logits,
    )


def view_filters(weight: Tensor, kept: Tensor) -> View:
    """Filters for the twelve channels, or for several copies of each, as filters for the parts of a `View`."""
    weight = weight.unflatten(1, (TWELVE, -1)).sum(2) * kept
    frame, error, own, others, background, colours, place, in_front = weight.split(list(CHANNELS.values()), 1)
    return View(
        shared=torch.cat((frame, error, background, others, in_front), 1),
        own=torch.cat((own - others, place, -in_front), 1),
        colours=colours,
    )


def twelve_channels(view: View) -> Tensor:
    """The view as it is defined, [B,K,12,H,W], in the order of `FEATURES`."""
    shared = view.shared[:, None].expand(-1, view.own.shape[1], -1, -1, -1)
    frame, error, background, masks, in_front = shared.split([3, 1, 1, 1, 1], 2)
    own, place, own_in_front = view.own.split(1, 2)
    return torch.cat((frame, error, own, masks - own, background, view.colours, place, in_front - own_in_front), 2)


def slot_view(frame: Tensor, error: Tensor, masks: Tensor, colour_logits: Tensor, code: Code) -> Tensor:
    """All that each slot sees, [B,K,12,H,W]; the encoder itself never forms it."""
    return twelve_channels(view_parts(frame, error, masks, colour_logits, code))


class Encoder(nn.Module):
    """A trunk that parts into Gestalt and position heads; one set of weights for all slots."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes, layers = config.encoder, range(config.encoder.layers)
        inputs, tiny = TWELVE, 1e-12
        self.coarse = config.resolution == "coarse"
        self.fine_down = DownBy4(inputs, sizes.fine_channels, scale=tiny)
        self.fine_blocks = nn.Sequential(
            *(Residual(sizes.fine_channels, sizes.fine_channels, scale=tiny) for _ in layers)
        )
        self.down = DownBy4(sizes.fine_channels, sizes.channels, scale=tiny)
        self.blocks = nn.Sequential(*(Residual(sizes.channels, sizes.channels) for _ in layers))
        self.position_head = nn.Sequential(
            *(Residual(sizes.channels, sizes.channels) for _ in layers), Residual(sizes.channels, 3)
        )
        width = max(sizes.channels, config.gestalt)
        self.gestalt_head = nn.Sequential(
            ToVector(sizes.channels, width, config.grid, scale=tiny),
            *(Residual(width, width, 1) for _ in layers),
            Residual(width, config.gestalt, 1),
        )
        self.register_buffer("size_growth", torch.zeros(1))  # the trainer's: it lets sizes in slowly
        self.size_growth: Tensor
        kept = torch.cat([torch.full((n,), float(name not in config.zeroed)) for name, n in CHANNELS.items()])
        self.register_buffer("kept", kept[:, None, None], persistent=False)  # channels that are not blanked
        self.kept: Tensor

    def look(self, layer: DownBy4, view: View) -> Tensor:
        """The layer on the twelve channels of every slot, [B·K,out,h,w], without forming them.

        It is linear: what all slots share goes through it once, and only the colours need the gradient of its input.
        """
        pooled = twelve_channels(View(*map(pooled_by_4, view)))
        filters = view_filters(layer.first.weight, self.kept)
        shared = stride_conv(view.shared, filters.shared, layer.first.bias)
        own = stride_conv(view.own.flatten(0, 1), filters.own)
        colours = stride_conv(view.colours.flatten(0, 1), filters.colours)
        inner = (own + colours).unflatten(0, view.own.shape[:2]) + shared[:, None]
        return layer.join(pixels_last((pooled * self.kept).flatten(0, 1)), pixels_last(inner.flatten(0, 1)))

    @exact
    def locate(self, x: Tensor) -> Tensor:
        """The position head's last block, on which a place hangs directly; [B·K,3,h,w]."""
        scores: Tensor = self.position_head[-1](x)
        return scores

    def forward(self, view: View) -> Code:
        """What, where and depth order of every slot at t."""
        batch = view.own.shape[:2]
        x = self.look(self.down, view) if self.coarse else self.down(self.fine_blocks(self.look(self.fine_down, view)))
        x = self.blocks(x)
        size, place, depth = self.locate(self.position_head[:-1](x)).unbind(1)
        sigma = torch.tanh(self.size_growth) * torch.sigmoid(size - 10).mean((1, 2))[:, None]
        return Code(
            position=torch.cat((soft_argmax(place), sigma), 1).unflatten(0, batch),
            gestalt=self.gestalt_head(x).unflatten(0, batch),
            priority=torch.tanh(depth).mean((1, 2)).unflatten(0, batch),
        )
