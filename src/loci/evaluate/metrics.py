"""How far a predicted picture, or a predicted place, is from the true one.

Every function scores each frame by itself and returns one number per leading index (usually [B,T]), so that a mean over
frames, a value at one frame and a curve over time all come from the same numbers. Pictures are [...,C,H,W], float in
[0,1] or uint8; a colour picture is scored channel by channel, and the channels are averaged. Moving MNIST, whose
three channels are equal, is scored on one of them: pass `frames[..., :1, :, :]`.

Masks are in `metrics_masks`, tracks in `metrics_tracking`, CATER's own scores in `metrics_cater`, object permanence in
`metrics_permanence`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

HORIZONS = (10, 20, 30, 50, 100)  # the columns of the paper's Moving MNIST table


def unit(frames: Tensor) -> Tensor:
    """Pictures as floats in [0,1]: bytes are divided by 255, floats are what they are."""
    return frames.float() / 255 if frames.dtype == torch.uint8 else frames


def _pair(predicted: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    if predicted.shape != truth.shape:
        raise ValueError(f"pictures of shape {tuple(predicted.shape)} cannot be compared with {tuple(truth.shape)}")
    if predicted.dim() < 3:
        raise ValueError(f"pictures need channels, rows and columns, got shape {tuple(predicted.shape)}")
    return unit(predicted), unit(truth)


def mse(predicted: Tensor, truth: Tensor) -> Tensor:
    """Squared error summed over the pixels of one channel (the video-prediction convention), per frame."""
    predicted, truth = _pair(predicted, truth)
    return (predicted - truth).square().sum((-2, -1)).mean(-1)


def mse_per_pixel(predicted: Tensor, truth: Tensor) -> Tensor:
    """Squared error averaged over pixels and channels, per frame."""
    predicted, truth = _pair(predicted, truth)
    return (predicted - truth).square().mean((-3, -2, -1))


def psnr(predicted: Tensor, truth: Tensor) -> Tensor:
    """Peak signal to noise ratio in decibels at a data range of 1, per frame; infinite where the frames are equal."""
    return -10 * torch.log10(mse_per_pixel(predicted, truth))


def _window(side: int, sigma: float) -> list[float]:
    weights = [math.exp(-((n - (side - 1) / 2) ** 2) / (2 * sigma**2)) for n in range(side)]
    return [weight / sum(weights) for weight in weights]


def _blurred(x: Tensor, weights: list[float], dim: int) -> Tensor:
    """Weighted sums along an axis, where the window fits. Not a convolution: on a GPU those round to 10 bits."""
    fits = x.shape[dim] - len(weights) + 1
    result = x.narrow(dim, 0, fits) * weights[0]
    for n, weight in enumerate(weights[1:], start=1):
        result.add_(x.narrow(dim, n, fits), alpha=weight)
    return result


Border = Literal["reflect", "crop"]


def ssim(
    predicted: Tensor,
    truth: Tensor,
    *,
    border: Border = "reflect",
    side: int = 11,
    sigma: float = 1.5,
    chunk: int | None = None,
) -> Tensor:
    """Structural similarity per frame, with a Gaussian window and a data range of 1.

    Args:
        predicted: [...,C,H,W].
        truth: the same shape.
        border: "reflect" mirrors the frame so that every pixel has a window (torchmetrics); "crop" averages only over
            the windows that fit into the frame (Wang et al. 2004, scikit-image).
        side: pixels along the window's side.
        sigma: the window's standard deviation in pixels.
        chunk: pixels of one channel worked on at once; by default what a CPU's cache holds, and more on a GPU.
    """
    predicted, truth = _pair(predicted, truth)
    *lead, C, H, W = predicted.shape
    if min(H, W) < side:
        raise ValueError(f"SSIM's window of {side} pixels does not fit into frames of {H}x{W}")
    if predicted.numel() == 0:
        return predicted.new_zeros(lead)
    weights, rim = _window(side, sigma), side // 2 if border == "reflect" else 0
    chunk = chunk or (2**24 if predicted.is_cuda else 2**16)
    frames = max(1, chunk // (H * W))
    pairs = zip(predicted.reshape(-1, H, W).split(frames), truth.reshape(-1, H, W).split(frames), strict=True)
    return torch.cat([_ssim_of(x, y, weights, rim) for x, y in pairs]).reshape(*lead, C).mean(-1)


def _ssim_of(x: Tensor, y: Tensor, weights: list[float], rim: int) -> Tensor:
    """SSIM of [n,H,W] with the usual constants (0.01 and 0.03 of the data range), mirrored by `rim` pixels first."""
    n = x.shape[0]
    x, y = (pad(frames, (rim, rim, rim, rim), mode="reflect") for frames in (x, y))
    moments = _blurred(_blurred(torch.cat((x, y, x * x, y * y, x * y)), weights, -2), weights, -1)
    mean_x, mean_y, xx, yy, xy = moments.split(n)
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x.square() + mean_y.square() + c1)
    # Rounding can leave a flat patch with a variance just below zero.
    variances = (xx - mean_x.square()).clamp(min=0) + (yy - mean_y.square()).clamp(min=0)
    structure = (2 * (xy - mean_x * mean_y) + c2) / (variances + c2)
    return (luminance * structure).mean((-2, -1))


def l2_object(predicted: Tensor, truth: Tensor, background: Tensor) -> Tensor:
    """The ablations' squared error weighted by how far each pixel is from the background (Eq. l2_obj), per frame.

    The paper sums over batch and time too: sum what this returns.

    Args:
        predicted: [...,C,H,W], what was said of the frame.
        truth: [...,C,H,W], the frame.
        background: broadcasts to them.
    """
    predicted, truth = _pair(predicted, truth)
    weight = (truth - unit(background)).square().mean(-3, keepdim=True).sqrt()
    return ((predicted - truth) * weight).square().sum((-3, -2, -1))


class Horizon(NamedTuple):
    """A measure at one horizon T: the mean over predicted frames 1 to T, and the value at frame T alone."""

    mean: Tensor
    last: Tensor


def at_horizons(curve: Tensor, horizons: Sequence[int] = HORIZONS) -> dict[int, Horizon]:
    """Both readings of a table's T from a measure per predicted frame [...,T], averaged over everything but time.

    Horizons longer than the curve are left out.
    """
    over_time = curve.double().reshape(-1, curve.shape[-1]).mean(0)
    return {T: Horizon(over_time[:T].mean(), over_time[T - 1]) for T in horizons if len(over_time) >= T}


def position_error(predicted: Tensor, truth: Tensor, size: tuple[int, int]) -> Tensor:
    """Distance in pixels, on an H×W frame, between positions [...,2] in [-1,1]; a third entry (size) is ignored."""
    step = predicted.new_tensor([(n - 1) / 2 for n in size])
    return ((predicted[..., :2] - truth[..., :2]) * step).norm(dim=-1)


class Summary(NamedTuple):
    """What a table says of many numbers: how many, mean, median and the inner 50 and 80 in 100."""

    number: int
    mean: float
    median: float
    low_25: float
    high_75: float
    low_10: float
    high_90: float


def summary(values: Tensor) -> Summary:
    """Count, mean, median and quantiles of the values that are not NaN; NaN throughout where there are none."""
    known = values.double().flatten()
    known = known[~known.isnan()]
    if not len(known):
        return Summary(0, *[math.nan] * 6)
    # torch.quantile refuses more than 2^24 numbers; sorting does not.
    ordered = known.sort().values
    place = torch.tensor([0.5, 0.25, 0.75, 0.1, 0.9], dtype=torch.float64, device=known.device) * (len(known) - 1)
    below = ordered[place.floor().long()]
    quantiles = below + (ordered[place.ceil().long()] - below) * (place - place.floor())
    return Summary(len(known), known.mean().item(), *quantiles.tolist())
