import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as coco
from sklearn.metrics import adjusted_rand_score

from loci import random
from loci.evaluate import metrics_masks as masks


def label_maps(count, high, shape, name):
    return random.integers(random.key(3, name), high, (count, *shape))


@pytest.mark.parametrize(("P", "G", "shape"), [(2, 2, (3, 4)), (5, 3, (4, 4)), (11, 4, (6, 5)), (1, 4, (3, 3))])
def test_ari_against_scikit_learn(P, G, shape):
    predicted, truth = label_maps(500, P, shape, "p"), label_maps(500, G, shape, "g")
    found = masks.ari(predicted, truth)
    expected = [adjusted_rand_score(t.flatten(), p.flatten()) for p, t in zip(predicted, truth, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.int64, (2, 4, 4), elements=st.integers(0, 3)))
def test_fg_ari_against_scikit_learn(pair):
    predicted, truth = torch.from_numpy(pair)
    shown = truth > 0
    found = masks.fg_ari(predicted, truth).item()
    if not shown.any():
        assert np.isnan(found)
    else:
        assert found == pytest.approx(adjusted_rand_score(truth[shown], predicted[shown]), abs=1e-12)


def test_fg_ari_of_many_maps_at_once_against_scikit_learn():
    predicted, truth = label_maps(1500, 4, (5, 5), "p"), label_maps(1500, 4, (5, 5), "g")
    truth[:100] = truth[:100] * (truth[:100] > 2)
    for p, t, score in zip(predicted.numpy(), truth.numpy(), masks.fg_ari(predicted, truth).tolist(), strict=True):
        shown = t > 0
        expected = adjusted_rand_score(t[shown], p[shown]) if shown.any() else np.nan
        assert score == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_ari_per_video_sees_a_swap_that_frames_do_not():
    truth = torch.tensor([[[1, 1, 2, 2]], [[1, 1, 2, 2]]])[None]  # [B=1, T=2, H=1, W=4]
    swapped = truth.clone()
    swapped[0, 1] = 3 - swapped[0, 1]
    torch.testing.assert_close(masks.fg_ari(swapped, truth), torch.ones(1, 2, dtype=torch.float64))
    whole = masks.fg_ari(masks.whole_videos(swapped), masks.whole_videos(truth), shared=1)
    assert whole.shape == (1, 1)
    assert whole.item() == pytest.approx(adjusted_rand_score(truth.flatten(), swapped.flatten()))
    assert whole.item() < 0


def test_ari_of_corner_cases():
    background = torch.zeros(1, 4, 4, dtype=torch.int64)
    assert masks.ari(background, background).item() == 1
    assert masks.fg_ari(background, background).isnan().all()
    one = torch.ones(1, 4, 4, dtype=torch.int64)
    assert masks.fg_ari(one, one).item() == 1
    assert masks.fg_ari(background, one).item() == 1  # one segment in both: the same partition
    singles = torch.arange(16).reshape(1, 4, 4)
    assert masks.ari(singles, singles).item() == 1
    assert masks.ari(singles, one).item() == 0


def brute_force(predicted, truth):
    """The best mean IoU over every way to match, with pycocotools' IoU."""
    G, P = sorted(set(truth.flatten().tolist()) - {0}), sorted(set(predicted.flatten().tolist()) - {0})
    if not G:
        return np.nan
    if not P:
        return 0.0
    encode = lambda labels, n: coco.encode(np.asfortranarray((labels == n).numpy().astype(np.uint8)))  # noqa: E731
    table = coco.iou([encode(predicted, p) for p in P], [encode(truth, g) for g in G], [0] * len(G))
    padded = np.zeros((max(len(P), len(G)), len(G)))
    padded[: len(P)] = table
    ways = itertools.permutations(range(len(padded)), len(G))
    return max(sum(padded[r, c] for c, r in enumerate(way)) for way in ways) / len(G)


def test_miou_against_pycocotools_and_every_permutation():
    predicted, truth = label_maps(1000, 5, (5, 6), "p"), label_maps(1000, 4, (5, 6), "g")
    predicted[:40] = predicted[:40].clamp(max=1)
    truth[20:60] = truth[20:60] * (truth[20:60] > 2)
    found = masks.miou(masks.match(predicted, truth))
    np.testing.assert_allclose(found, [brute_force(p, t) for p, t in zip(predicted, truth, strict=True)])


def test_miou_of_a_perfect_prediction_is_one_not_a_half():
    """A widely copied implementation divides by the sum instead of the union."""
    truth = label_maps(3, 5, (8, 8), "g")
    shuffled = torch.tensor([0, 3, 1, 4, 2])[truth]
    matched = masks.match(shuffled, truth)
    torch.testing.assert_close(masks.miou(matched), torch.ones(3, dtype=torch.float64))
    assert (matched.slot == torch.tensor([2, 0, 3, 1])).all()


def test_miou_of_corner_cases():
    truth = torch.zeros(4, 2, 4, dtype=torch.int64)
    predicted = truth.clone()
    truth[1:, 0] = 1
    predicted[2, :, :2] = 3  # half of the object and as much outside
    predicted[3] = 2
    found = masks.miou(masks.match(predicted, truth))
    assert found[0].isnan()
    np.testing.assert_allclose(found[1:], [0, 2 / 6, 0.5])
    assert masks.match(predicted, truth).slot.tolist() == [[-1], [-1], [2], [1]]


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 3, 4, 4), (1, 4, 4)])
def test_nothing_predicted_or_nothing_there_at_all(shape):
    nothing, something = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    something[..., :2, :2] = 2
    missed = masks.match(nothing, something)
    assert (masks.miou(missed) == 0).all()
    assert (missed.slot == -1).all()
    assert masks.mask_average(missed) == masks.pixel_average(missed) == 0
    for predicted in (nothing, something):
        empty = masks.match(predicted, nothing)
        assert masks.miou(empty).isnan().all()
        assert masks.miou(empty).shape == shape[:-2]
        assert masks.fg_ari(predicted, nothing).isnan().all()
        assert masks.match(predicted, nothing, objects=3).slot.shape == (*shape[:-2], 3)


def test_match_with_more_objects_than_were_seen():
    truth = torch.tensor([[[1, 1, 0]]])
    matched = masks.match(truth, truth, objects=4)
    assert matched.size.tolist() == [[2, 0, 0, 0]]
    assert matched.slot.tolist() == [[0, -1, -1, -1]]
    assert matched.iou[0, 1:].isnan().all()


def test_the_papers_averages():
    truth = torch.zeros(2, 4, 8, dtype=torch.int64)
    truth[0, :2] = 1  # 16 pixels, found whole
    truth[0, 2, :4] = 2  # 4 pixels, missed
    truth[1, 0, :4] = 1  # 4 pixels, half found
    predicted = torch.zeros_like(truth)
    predicted[0, :2] = 5
    predicted[1, 0, :2] = 1
    matched = masks.match(predicted, truth)
    assert masks.mask_average(matched).item() == pytest.approx((1 + 0 + 0.5) / 3)
    assert masks.pixel_average(matched).item() == pytest.approx((16 * 1 + 0 + 4 * 0.5) / 24)


def test_the_papers_averages_against_pycocotools_and_every_permutation():
    """Objects of many images, pooled; each image is matched by itself."""
    predicted, truth = label_maps(300, 4, (5, 6), "p"), label_maps(300, 4, (5, 6), "g")
    truth[:50] = truth[:50] * (truth[:50] > 1)
    predicted[40:60] = 0
    matched = masks.match(predicted, truth)
    overlaps, sizes = [], []
    for p, t in zip(predicted.numpy(), truth.numpy(), strict=True):
        there = [g for g in range(1, 4) if (t == g).any()]
        code = lambda labels, n: coco.encode(np.asfortranarray((labels == n).astype(np.uint8)))  # noqa: E731
        table = np.asarray(coco.iou([code(p, n) for n in range(1, 4)], [code(t, g) for g in there], [0] * len(there)))
        ways = itertools.permutations(range(3), len(there))
        best = max(ways, key=lambda way: sum(table[r, c] for c, r in enumerate(way)))
        overlaps += [table[r, c] for c, r in enumerate(best)]
        sizes += [(t == g).sum() for g in there]
    assert masks.mask_average(matched).item() == pytest.approx(np.mean(overlaps))
    # Two ways to match can be equally good over all and differ by object, so that weights make a small difference.
    assert masks.pixel_average(matched).item() == pytest.approx(np.average(overlaps, weights=sizes), rel=1e-3)


def test_labels_of_masks():
    visible = torch.zeros(1, 3, 2, 2, dtype=torch.bool)
    visible[0, 0, 0, 0] = visible[0, 2, 1, 1] = True
    assert masks.labels_of_objects(visible).tolist() == [[[1, 0], [0, 3]]]
    assert masks.labels_of_objects(visible[:, :0]).tolist() == [[[0, 0], [0, 0]]]
    soft = torch.zeros(1, 3, 1, 3)  # two slots and the background, which is last
    soft[0, 2, 0, 0] = soft[0, 0, 0, 1] = soft[0, 1, 0, 2] = 1
    assert masks.labels_of_slots(soft).tolist() == [[[0, 1, 2]]]


def test_unlike_maps_are_refused():
    with pytest.raises(ValueError, match="do not match"):
        masks.contingency(torch.zeros(1, 2, 2), torch.zeros(1, 2, 3))
