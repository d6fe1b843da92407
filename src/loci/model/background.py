"""A background that moves: water, leaves, light. Learned from the video itself before there are any objects.

The paper's autoencoder (appendix "Background Model"): a residual network brings the frame down to a code of the
Gestalt's size, a GateL0RD with a skip follows its dynamics, a residual network brings it back up. What does not move is
a learnable image, so that all of the code is left for what does. Trained with an L1 error, frame by frame with the
project's eligibility traces. Stateless: cell state in, cell state out.

An L1 error alone learns the objects too, given one short video and time. So what is further from the still image than
the scene's own movement usually takes a pixel is left out: of what the encoder sees, and of the error.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loci.errors import UserError
from loci.model.blocks import DownBy4, Residual, ToVector, UpBy4
from loci.model.frames import as_frame, check_frame
from loci.model.gatelord import CellState, GateL0RD


@dataclass(frozen=True)
class BackgroundConfig:
    """Sizes of a moving background."""

    height: int
    """Height of the frames, divisible by 4."""
    width: int
    """Width of the frames, divisible by 4."""
    code: int = 96
    """Numbers that describe one frame's background: the Gestalt's size."""
    channels: int = 48
    """Channels at the smallest scale."""

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 16 or self.height % 4 or self.width % 4:
            raise UserError(
                f"a background of {self.height}x{self.width}: both sides must be 16 or more, divisible by 4"
            )
        if min(self.code, self.channels) < 1 or self.channels % 12:
            raise UserError(f"code {self.code} and channels {self.channels}: positive, channels a multiple of 12")

    def as_dict(self) -> dict[str, int]:
        """As plain JSON values."""
        return asdict(self)

    @property
    def twice(self) -> bool:
        """Whether frames are large enough to come down by 4 twice."""
        return min(self.height, self.width) >= 128 and self.height % 16 == 0 and self.width % 16 == 0


class MovingBackground(nn.Module):
    """`start`, then `step` for each frame."""

    def __init__(self, config: BackgroundConfig) -> None:
        super().__init__()
        self.config = config
        self.size = (config.height, config.width)
        shrink, c = (16 if config.twice else 4), config.channels
        grid = (config.height // shrink, config.width // shrink)
        down: list[nn.Module] = [DownBy4(3, c // 2, scale=1.0), DownBy4(c // 2, c, scale=1.0)]
        up: list[nn.Module] = [UpBy4(c, c // 4, scale=1.0), UpBy4(c // 4, 3, scale=1.0)]
        if not config.twice:
            down, up = [DownBy4(3, c, scale=1.0)], [UpBy4(c, 3, scale=1.0)]
        self.encoder = nn.Sequential(*down, Residual(c, c), ToVector(c, config.code, grid, scale=1.0))
        self.cell = GateL0RD(config.code, config.code)
        self.alpha = nn.Parameter(torch.full((1,), 0.1))
        self.spread = nn.Linear(config.code, c * math.prod(grid))
        self.decoder = nn.Sequential(nn.Unflatten(1, (c, *grid)), Residual(c, c), *up)
        self.still = nn.Parameter(torch.zeros(3, *self.size))
        self.tolerance: Tensor
        self.register_buffer("tolerance", torch.ones(1, *self.size))
        nn.init.zeros_(self.spread.bias)

    def start(self, batch: int = 1) -> CellState:
        """A state that has seen nothing."""
        return self.cell.start((batch,))

    def step(self, frame: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """[B,3,H,W] of a frame -> [B,3,H,W] its background in [0, 1], and the new state."""
        check_frame(frame, self.size, state.hidden.shape[0], "frame")
        frame = as_frame(frame, self.still.dtype, self.still.device)
        movement = torch.where(self.objects(frame), 0, frame - torch.sigmoid(self.still))
        code = self.encoder(movement).flatten(1)
        change, state, _ = self.cell(code, state)
        logits = self.decoder(self.spread(code + self.alpha * change))
        return torch.sigmoid(self.still + logits), state._replace(hidden=state.hidden.detach())

    def objects(self, frame: Tensor) -> Tensor:
        """[B,3,H,W] in [0, 1] -> [B,1,H,W] bool: what the scene's own movement does not explain, and a pixel around.

        Only where it is two pixels wide and high: glints and the line of a water's surface are no objects.
        """
        far = (frame - torch.sigmoid(self.still.detach())).abs().amax(1, keepdim=True) > self.tolerance
        solid = -F.max_pool2d(-F.pad(far.to(frame.dtype), (0, 1, 0, 1)), 2, stride=1)
        return F.max_pool2d(solid, 3, stride=1, padding=1) > 0

    def begin_from(self, frames: Tensor) -> None:
        """Start as the median of a video's frames, [T,3,H,W] uint8, and note how far pixels usually are from it."""
        sample = as_frame(frames[:: -(-len(frames) // 200)], self.still.dtype, self.still.device)
        scene = sample.median(0).values.clamp(0.02, 0.98)
        usual = (sample - scene).abs().amax(1).median(0).values
        with torch.no_grad():
            self.still.copy_(torch.logit(scene))
            self.tolerance.copy_(1.5 * usual[None] + 0.04)
