import math

import numpy as np
import pytest
import torch
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from loci import random
from loci.evaluate import metrics


def noise(*shape, name="metrics", **kind):
    return random.uniform(random.key(1, name), shape, **kind)


def smooth(*shape, name="smooth"):
    """Pictures with structure, so that SSIM is not that of noise alone."""
    rough = noise(*shape[:-2], shape[-2] // 8, shape[-1] // 8, name=name)
    return torch.nn.functional.interpolate(rough.flatten(0, -4), shape[-2:], mode="bilinear").reshape(shape)


def test_mse_is_the_sum_over_one_channels_pixels():
    truth = torch.zeros(2, 3, 3, 4, 5)
    predicted = truth.clone()
    predicted[1, 2, :, 1, 1] = 0.5
    predicted[1, 2, :, 3, 4] = 1.0
    expected = torch.zeros(2, 3)
    expected[1, 2] = 1.25
    torch.testing.assert_close(metrics.mse(predicted, truth), expected)
    torch.testing.assert_close(metrics.mse(predicted[..., :1, :, :], truth[..., :1, :, :]), expected)
    torch.testing.assert_close(metrics.mse_per_pixel(predicted, truth), expected / 20)


def test_mse_against_numpy_on_bytes():
    x, y = (random.integers(random.key(2, n), 256, (5, 3, 16, 16)).to(torch.uint8) for n in "xy")
    by_hand = ((x.numpy() / 255 - y.numpy() / 255) ** 2).sum((2, 3)).mean(1)
    np.testing.assert_allclose(metrics.mse(x, y).numpy(), by_hand, rtol=1e-5)


def test_psnr_against_torchmetrics():
    x, y = noise(2000, 3, 16, 16), noise(2000, 3, 16, 16, name="other")
    expected = peak_signal_noise_ratio(x, y, data_range=1.0, reduction="none", dim=(1, 2, 3))
    torch.testing.assert_close(metrics.psnr(x, y), expected)


def test_psnr_of_equal_frames_is_infinite():
    assert metrics.psnr(noise(1, 3, 8, 8), noise(1, 3, 8, 8)).item() == math.inf


@pytest.mark.parametrize(("size", "count"), [((11, 11), 1000), ((16, 48), 200), ((64, 64), 40)])
@pytest.mark.parametrize("blend", [0.0, 0.3, 1.0])
def test_ssim_against_torchmetrics(size, count, blend):
    x = smooth(count, 3, *size) if min(size) >= 16 else noise(count, 3, *size)
    y = (1 - blend) * x + blend * noise(count, 3, *size, name="other")
    mean, full = structural_similarity_index_measure(
        x, y, sigma=1.5, kernel_size=11, data_range=1.0, reduction="none", return_full_image=True
    )
    torch.testing.assert_close(metrics.ssim(x, y), mean, atol=2e-5, rtol=1e-4)
    inner = full[..., 5:-5, 5:-5].mean((-3, -2, -1))
    torch.testing.assert_close(metrics.ssim(x, y, border="crop"), inner, atol=2e-5, rtol=1e-4)


def test_ssim_does_not_depend_on_chunks_and_keeps_leading_axes():
    x, y = noise(4, 5, 3, 16, 20), noise(4, 5, 3, 16, 20, name="other")
    whole = metrics.ssim(x, y)
    assert whole.shape == (4, 5)
    torch.testing.assert_close(metrics.ssim(x, y, chunk=7 * 320), whole)
    assert metrics.ssim(x[:0], y[:0]).shape == (0, 5)


def test_ssim_of_equal_frames_is_one_also_where_they_are_flat():
    flat = torch.full((1, 3, 16, 16), 0.4)
    torch.testing.assert_close(metrics.ssim(flat, flat), torch.ones(1))


def test_ssim_uses_a_data_range_of_one():
    """With the published code's range of 255 this pair would score above 0.99."""
    assert metrics.ssim(torch.zeros(1, 1, 16, 16), torch.ones(1, 1, 16, 16)).item() < 1e-3


def test_unlike_shapes_and_small_frames_are_refused():
    with pytest.raises(ValueError, match="cannot be compared"):
        metrics.mse(torch.zeros(1, 3, 8, 8), torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match="11 pixels does not fit into frames of 8x8"):
        metrics.ssim(torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="need channels"):
        metrics.mse(torch.zeros(8, 8), torch.zeros(8, 8))


def test_l2_object_is_the_papers_equation():
    said, seen, B = (noise(2, 3, 3, 4, 5, name=n, dtype=torch.float64) for n in ("output", "input", "background"))
    by_hand = np.zeros((2, 3))
    for b, t, c, h, w in np.ndindex(2, 3, 3, 4, 5):
        weight = math.sqrt(sum((seen[b, t, k, h, w] - B[b, t, k, h, w]).item() ** 2 / 3 for k in range(3)))
        by_hand[b, t] += ((said[b, t, c, h, w] - seen[b, t, c, h, w]).item() * weight) ** 2
    np.testing.assert_allclose(metrics.l2_object(said, seen, B).numpy(), by_hand)


def test_l2_object_ignores_errors_on_the_background_and_takes_one_background_for_all():
    truth = torch.zeros(2, 4, 3, 6, 6)
    truth[..., 2, 2] = 1
    wrong_background = truth.clone()
    wrong_background[..., 0, 0] = 1
    missed = torch.zeros_like(truth)
    background = torch.zeros(2, 1, 3, 6, 6)
    assert metrics.l2_object(wrong_background, truth, background).sum() == 0
    torch.testing.assert_close(metrics.l2_object(missed, truth, background), torch.full((2, 4), 3.0))


def test_both_readings_of_a_horizon():
    curve = torch.arange(1.0, 31).repeat(4, 1)
    both = metrics.at_horizons(curve)
    assert list(both) == [10, 20, 30]
    assert both[10].mean == 5.5
    assert both[10].last == 10
    assert both[30].mean == 15.5
    assert both[30].last == 30


def test_position_error_counts_pixels():
    corner, other = torch.tensor([-1.0, -1.0, 0.3]), torch.tensor([1.0, 1.0])
    assert metrics.position_error(corner, other, (4, 5)).item() == pytest.approx(5)  # 3 rows and 4 columns away
    one_column = torch.tensor([-1.0, -1 + 2 / 319])
    assert metrics.position_error(corner, one_column, (240, 320)).item() == pytest.approx(1, rel=1e-4)


def test_summary_against_numpy():
    values = noise(1001)
    values[::7] = torch.nan
    known = values[~values.isnan()].double().numpy()
    found = metrics.summary(values)
    expected = (len(known), known.mean(), *np.quantile(known, [0.5, 0.25, 0.75, 0.1, 0.9]))
    np.testing.assert_allclose(found, expected)
    assert metrics.summary(torch.full((3,), torch.nan)).number == 0
    assert math.isnan(metrics.summary(torch.zeros(0)).median)
