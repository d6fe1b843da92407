"""PhyDNet (Le Guen and Thome, CVPR 2020), the paper's rival on Moving MNIST, from its published description.

Two recurrent branches share an encoder and a decoder. PhyCell's hidden state follows a learned partial differential
equation: derivatives up to some order, taken by convolutions whose kernels are held to the moments of exact difference
stencils, then mixed point by point; a gate corrects the prediction with what was seen, as in a Kalman filter. What no
such equation explains goes through a stack of ConvLSTM cells. Time is an argument: state in, state out.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loci.errors import UserError
from loci.model.frames import as_frame, check_frame


@dataclass(frozen=True)
class PhyDNetConfig:
    """Sizes; the defaults are the published ones for Moving MNIST."""

    height: int = 64
    """Height of the frames, divisible by 4."""
    width: int = 64
    """Width of the frames, divisible by 4."""
    channels: int = 64
    """Of the latent maps, at a quarter of the frame's size."""
    kernel: int = 7
    """Side of PhyCell's kernels; kernel² derivatives."""
    memory: tuple[int, ...] = (128, 128, 64)
    """Channels of the ConvLSTM layers; the last are the latent maps' again."""
    groups: int = 16
    """Groups of the normalisations."""

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 8 or self.height % 4 or self.width % 4:
            raise UserError(
                f"phydnet takes frames whose sides are 8 or more and divisible by 4, not {self.height}x{self.width}"
            )
        if self.kernel % 2 == 0:
            raise UserError(f"kernel {self.kernel}: PhyCell's kernels need an odd side")
        if self.channels % (2 * self.groups) or self.memory[-1] != self.channels:
            raise UserError("channels must be a multiple of twice the groups, and the last memory layer's number")

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "memory": list(self.memory)}


def moments(kernels: Tensor) -> Tensor:
    """The moment matrix of every kernel [...,k,k]: M_ij = 1/(i! j!) Σ_uv u^i v^j w_uv, u and v counted from the middle.

    Convolving with a kernel is Σ_ij M_ij ∂^(i+j)/∂x^i∂y^j, by Taylor's expansion; a kernel whose only moment is a 1 at
    (i, j) takes that derivative.
    """
    powers = moment_basis(kernels.shape[-1], kernels)
    return torch.einsum("iu,...uv,jv->...ij", powers, kernels, powers)


def moment_basis(side: int, like: Tensor) -> Tensor:
    """u^i / i!, [k,k]: a row for each power i, a column for each place u."""
    place = torch.arange(side, dtype=like.dtype, device=like.device) - side // 2
    return torch.stack([place**i / math.factorial(i) for i in range(side)])


class PhyState(NamedTuple):
    """All that PhyDNet carries from frame to frame."""

    physical: Tensor
    """[B,C,h,w], PhyCell's hidden state."""
    hidden: tuple[Tensor, ...]
    """Of each ConvLSTM layer."""
    cells: tuple[Tensor, ...]
    """Their cell states."""
    frame: Tensor
    """[B,3,H,W], the next frame as predicted."""


class PhyOutput(NamedTuple):
    """What a step says; `observe` and `imagine` have time in dimension 1."""

    frame: Tensor
    """[B,3,H,W] the next frame, predicted."""


class PhyCell(nn.Module):
    """A partial differential equation in latent space, corrected by what is seen."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        count = kernel * kernel
        self.derivatives = nn.Conv2d(channels, count, kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(kernel, count)
        self.mix = nn.Conv2d(count, channels, 1)
        self.gain = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, seen: Tensor, hidden: Tensor) -> Tensor:
        """h̃ = h + Φ(h), then h = h̃ + K ⊙ (E(u) − h̃) with the gain K of both."""
        predicted = hidden + self.mix(self.norm(self.derivatives(hidden)))
        gain = torch.sigmoid(self.gain(torch.cat((seen, predicted), 1)))
        return predicted + gain * (seen - predicted)

    def moment_loss(self) -> Tensor:
        """Squared distance of every kernel's moments from those of the derivative it stands for."""
        count, _, side, _ = self.derivatives.weight.shape
        wanted = torch.eye(count, device=self.derivatives.weight.device).view(count, 1, side, side)
        return (moments(self.derivatives.weight) - wanted).square().mean((0, 2, 3)).sum()


class ConvLSTM(nn.Module):
    """One layer of the branch for what no equation explains."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.gates = nn.Conv2d(inputs + channels, 4 * channels, 3, padding=1)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """The new hidden and cell states."""
        keep_in, forget, out, new = self.gates(torch.cat((x, hidden), 1)).chunk(4, 1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(keep_in) * torch.tanh(new)
        return torch.sigmoid(out) * torch.tanh(cell), cell


class PhyDNet(nn.Module):
    """`start`, `bootstrap`, `observe`, `imagine`: the same verbs as Loci, so one harness takes both."""

    def __init__(self, config: PhyDNetConfig) -> None:
        super().__init__()
        self.config, self.size = config, (config.height, config.width)
        c, g = config.channels, config.groups
        half = c // 2
        # One gray channel in and out: Moving MNIST's three are equal.
        self.down = nn.ModuleList((_conv(1, half, g, 2), _conv(half, half, g, 1), _conv(half, c, g, 2)))
        self.to_physical = nn.Sequential(_conv(c, c, g, 1), _conv(c, c, g, 1))
        self.to_residual = nn.Sequential(_conv(c, c, g, 1), _conv(c, c, g, 1))
        self.physics = PhyCell(c, config.kernel)
        widths = (c, *config.memory)
        self.memory = nn.ModuleList(ConvLSTM(a, b) for a, b in zip(widths, config.memory, strict=False))
        self.from_physical = nn.Sequential(_conv(c, c, g, 1), _conv(c, c, g, 1))
        self.from_residual = nn.Sequential(_conv(c, c, g, 1), _conv(c, c, g, 1))
        self.up = nn.ModuleList((_up(c, half, g), _conv(half, half, g, 1)))
        self.paint = nn.ConvTranspose2d(half, 1, 4, stride=2, padding=1)

    def start(
        self, batch: int = 1, background: Tensor | None = None, *, seed: int = 0, keys: Tensor | None = None
    ) -> PhyState:
        """A state of zeros. PhyDNet knows no background and draws nothing: the other arguments are Loci's."""
        weight = self.paint.weight
        shape = (batch, self.config.channels, self.config.height // 4, self.config.width // 4)
        layers = tuple(weight.new_zeros(batch, width, *shape[2:]) for width in self.config.memory)
        return PhyState(weight.new_zeros(shape), layers, layers, weight.new_zeros(batch, 3, *self.size))

    def bootstrap(self, frame: Tensor, state: PhyState) -> PhyState:
        """Nothing to get ready."""
        return state

    def step(self, frame: Tensor, state: PhyState) -> tuple[PhyState, PhyOutput]:
        """See a frame [B,3,H,W], float in [0, 1] or uint8, and predict the next."""
        check_frame(frame, self.size, state.physical.shape[0], "frame")
        return self.flow(as_frame(frame, self.paint.weight.dtype, self.paint.weight.device), state)

    def flow(self, frame: Tensor, state: PhyState) -> tuple[PhyState, PhyOutput]:
        """The same of floats that are known to be good."""
        x = frame[:, :1]
        for layer in self.down:
            x = layer(x)
        physical = self.physics(self.to_physical(x), state.physical)
        y, hidden, cells = self.to_residual(x), [], []
        for layer, h, c in zip(self.memory, state.hidden, state.cells, strict=True):
            y, c = layer(y, h, c)
            hidden.append(y)
            cells.append(c)
        z = self.from_physical(physical) + self.from_residual(y)
        for layer in self.up:
            z = layer(z)
        predicted = torch.sigmoid(self.paint(z)).expand(-1, 3, -1, -1)
        return PhyState(physical, tuple(hidden), tuple(cells), predicted), PhyOutput(predicted)

    def observe(self, frames: Tensor, state: PhyState) -> tuple[PhyState, PhyOutput]:
        """A step for every frame of [B,T,3,H,W]."""
        outputs = []
        for frame in frames.unbind(1):
            state, output = self.step(frame, state)
            outputs.append(output.frame)
        return state, PhyOutput(torch.stack(outputs, 1))

    def imagine(self, state: PhyState, steps: int) -> tuple[PhyState, PhyOutput]:
        """Run on in closed loop: every prediction is the next frame seen."""
        outputs = []
        for _ in range(steps):
            state, output = self.flow(state.frame, state)
            outputs.append(output.frame)
        return state, PhyOutput(torch.stack(outputs, 1))


def _conv(inputs: int, outputs: int, groups: int, stride: int) -> nn.Sequential:
    """Convolution, normalisation, leak."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(groups, outputs), nn.LeakyReLU(0.2, inplace=True)
    )


def _up(inputs: int, outputs: int, groups: int) -> nn.Sequential:
    """The same, twice as large."""
    return nn.Sequential(
        nn.ConvTranspose2d(inputs, outputs, 4, 2, 1), nn.GroupNorm(groups, outputs), nn.LeakyReLU(0.2, inplace=True)
    )


def image_loss(predicted: Tensor, truth: Tensor) -> Tensor:
    """Squared error of one channel, a mean over pixels."""
    return F.mse_loss(predicted[..., :1, :, :], truth[..., :1, :, :])
