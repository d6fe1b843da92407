import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loci.errors import UserError
from loci.track.fit import Fit, tensor

side = st.integers(4, 300)
fits = st.builds(Fit, st.tuples(side, side), st.tuples(st.integers(8, 120), st.integers(8, 120)), st.booleans())
some = settings(deadline=None, max_examples=60, derandomize=True)


@some
@given(fits, st.tuples(st.floats(-2, 2), st.floats(-2, 2)))
def test_positions_come_back(fit, position):
    there = fit.to_pixels(np.array(position))
    assert fit.to_network(there) == pytest.approx(np.array(position), abs=1e-9)


@some
@given(fits)
def test_corners_of_the_picture_meet_corners_of_the_video(fit):
    top, left = fit.offset
    h, w = fit.inner
    assert top >= 0
    assert left >= 0
    assert top + h <= fit.network[0]
    assert left + w <= fit.network[1]
    edge = np.array([[top, left], [top + h, left + w]]) - 0.5  # outer edges in the network's pixels
    position = 2 * edge / (np.array(fit.network) - 1) - 1
    assert fit.to_pixels(position) == pytest.approx(np.array([[0, 0], fit.video]) - 0.5, abs=1e-6)


@some
@given(fits)
def test_letterbox_keeps_the_shape_of_things(fit):
    if not fit.letterbox:
        assert fit.inner == fit.network
        return
    h, w = fit.inner
    assert h == fit.network[0] or w == fit.network[1]
    exact = min(n / v for n, v in zip(fit.network, fit.video, strict=False))
    assert abs(h - max(1, fit.video[0] * exact)) <= 0.5
    assert abs(w - max(1, fit.video[1] * exact)) <= 0.5


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.tuples(st.integers(60, 200), st.integers(60, 200)), st.tuples(st.integers(40, 100), st.integers(40, 100)),
       st.booleans(), st.tuples(st.floats(0.25, 0.75), st.floats(0.25, 0.75)))  # fmt: skip
def test_a_disk_is_found_where_it_was(video, network, letterbox, centre):
    fit = Fit(video, network, letterbox)
    row, column = centre[0] * video[0], centre[1] * video[1]
    r, c = np.mgrid[: video[0], : video[1]]
    disk = ((r - row) ** 2 + (c - column) ** 2 < 12**2).astype(np.uint8) * 255
    true = np.array([(r * disk).sum(), (c * disk).sum()]) / disk.sum()
    small = fit.shrink(np.repeat(disk[..., None], 3, 2))[..., 0].astype(float)
    assert small.shape == network
    rs, cs = np.mgrid[: network[0], : network[1]]
    seen = np.array([(rs * small).sum(), (cs * small).sum()]) / small.sum()
    found = fit.to_pixels(2 * seen / (np.array(network) - 1) - 1)
    assert found == pytest.approx(true, abs=0.3)
    back = fit.enlarge(torch.from_numpy(small)[None])[0].numpy() > 127
    again = np.array([r[back].mean(), c[back].mean()])
    assert again == pytest.approx(true, abs=0.8)
    assert (back & (disk > 0)).sum() / (back | (disk > 0)).sum() > 0.8


@some
@given(fits, st.tuples(st.floats(0, 1), st.floats(0, 1)), st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_boxes_agree_with_positions(fit, first, second):
    a, b = np.minimum(first, second), np.maximum(first, second)
    corner, other = a * fit.network, b * fit.network  # outer edges in the network's pixels
    box = fit.boxes_to_pixels(np.array([corner[1], corner[0], *(other - corner)[::-1]]))
    edges = fit.to_pixels(2 * (np.stack([corner, other]) - 0.5) / (np.array(fit.network) - 1) - 1) + 0.5
    assert box == pytest.approx([edges[0, 1], edges[0, 0], *(edges[1] - edges[0])[::-1]], abs=1e-6)


def test_equal_sizes_change_nothing():
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    fit = Fit((24, 32), (24, 32))
    assert (fit.shrink(pixels) == pixels).all()
    assert (tensor(pixels).permute(1, 2, 0).numpy() == pixels).all()
    maps = torch.rand(3, 24, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fit.enlarge(maps), maps)
    assert fit.to_pixels(np.array([-1.0, 1.0])) == pytest.approx([0, 31])


def test_bars_are_black_and_where_they_should_be():
    fit = Fit((50, 100), (60, 60))
    framed = fit.shrink(np.full((50, 100, 3), 200, np.uint8))
    assert (framed[15:45] == 200).all()
    assert not framed[:15].any()
    assert not framed[45:].any()


def test_radius_is_that_of_the_gaussian_on_the_frame():
    fit = Fit((64, 64), (64, 64))
    assert fit.radius(np.array(0.0)) == pytest.approx(0.5)
    assert Fit((128, 128), (64, 64)).radius(np.array(0.1)) == pytest.approx(2 * (1 + 6.4) / 2)


def test_bars_only_where_shapes_would_change():
    assert not Fit.of((576, 768), (60, 80)).letterbox
    assert not Fit.of((550, 768), (60, 80)).letterbox
    assert Fit.of((480, 854), (60, 80)).letterbox
    assert Fit.of((576, 768), (60, 80), letterbox=True).letterbox
    assert not Fit.of((480, 854), (60, 80), letterbox=False).letterbox


def test_no_size_is_refused():
    with pytest.raises(UserError, match="positive"):
        Fit((0, 10), (20, 20))


def test_shrinking_is_the_mean_of_what_it_covers():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 80, 3), np.uint8)
    blocks = pixels.reshape(10, 4, 20, 4, 3).mean((1, 3))
    assert np.abs(Fit((40, 80), (10, 20)).shrink(pixels) - blocks).max() <= 1
