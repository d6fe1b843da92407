"""The slot-wise encoder: from what a slot sees to what and where its object is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from loci.config import FEATURES, Feature, ModelConfig
from loci.model.blocks import DownBy4, Residual, ToVector, match_channels
from loci.model.geometry import gaussian, prioritise, soft_argmax
from loci.model.state import Code

CHANNELS: dict[Feature, int] = dict(zip(FEATURES, (3, 1, 1, 1, 1, 3, 1, 1), strict=True))


def slot_view(
    frame: Tensor, error: Tensor, masks: Tensor, colour_logits: Tensor, code: Code, zeroed: tuple[Feature, ...] = ()
) -> Tensor:
    """The twelve channels each slot sees, [B,K,12,H,W].

    Masks are those of the previous step, colours and Gaussians those of the slots after search. Only the colour logits
    carry a gradient: they lead to the decoder and, through slots that were just drawn, to the start of a slot.
    """
    slots = code.priority.shape[1]
    position, priority = code.position.detach(), code.priority.detach()
    own = masks[:, :slots]
    place = gaussian(position, (frame.shape[2], frame.shape[3]))
    in_front = prioritise(place, priority)

    def each(shared: Tensor) -> Tensor:
        return shared[:, None].expand(-1, slots, -1, -1, -1)

    views: dict[Feature, Tensor] = {
        "frame": each(frame),
        "error": each(error),
        "own_mask": own[:, :, None],
        "other_masks": (own.sum(1, keepdim=True) - own)[:, :, None],
        "background_mask": each(masks[:, slots:]),
        "own_colours": colour_logits,
        "own_position": place[:, :, None],
        "other_positions": (in_front.sum(1, keepdim=True) - in_front)[:, :, None],
    }
    return torch.cat([torch.zeros_like(v) if name in zeroed else v for name, v in views.items()], 2)


class Encoder(nn.Module):
    """A trunk that parts into Gestalt and position heads; one set of weights for all slots."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes, layers = config.encoder, range(config.encoder.layers)
        inputs, tiny = sum(CHANNELS.values()), 1e-12
        self.coarse = config.resolution == "coarse"
        self.fine_channels = sizes.fine_channels
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

    def forward(self, view: Tensor) -> Code:
        """[B,K,12,H,W] -> what, where and depth order of every slot at t."""
        batch = view.shape[:2]
        x = view.flatten(0, 1)
        x = match_channels(x, self.fine_channels) if self.coarse else self.fine_blocks(self.fine_down(x))
        x = self.blocks(self.down(x))
        size, place, depth = self.position_head(x).unbind(1)
        sigma = torch.tanh(self.size_growth) * torch.sigmoid(size - 10).mean((1, 2))[:, None]
        return Code(
            position=torch.cat((soft_argmax(place), sigma), 1).unflatten(0, batch),
            gestalt=self.gestalt_head(x).flatten(1).unflatten(0, batch),
            priority=torch.tanh(depth).mean((1, 2)).unflatten(0, batch),
        )
