import itertools
import math
from functools import reduce
from operator import add

import motmetrics
import numpy as np
import pytest
from pycocotools import mask as coco

from loci.evaluate.metrics_tracking import ALPHAS, Sighting, box_iou, clear, hota, identity


def any_video(rng, objects=4, tracks=4, frames=8, keep=0.8):
    """Any similarities at all; objects and tracks come and go."""
    video = []
    for _ in range(rng.integers(1, frames)):
        truth = np.flatnonzero(rng.random(rng.integers(0, objects + 1)) < keep)
        predicted = np.flatnonzero(rng.random(rng.integers(0, tracks + 1)) < keep) + 100
        video.append(Sighting(truth.tolist(), predicted.tolist(), rng.random((len(truth), len(predicted)))))
    return video


def separated_video(rng):
    """No two objects could be mistaken for each other: gaps, false alarms, exchanges, one way to pair."""
    objects, video, names = 4, [], list(range(100, 104))
    for _ in range(12):
        if rng.random() < 0.3:
            rng.shuffle(names)
        truth = [int(g) for g in np.flatnonzero(rng.random(objects) < 0.8)]
        shown = [g for g in range(objects) if rng.random() < 0.8]
        similarity = rng.uniform(0, 0.49, (len(truth), len(shown)))
        for row, g in enumerate(truth):
            for column, other in enumerate(shown):
                if g == other and rng.random() < 0.9:
                    similarity[row, column] = rng.uniform(0.51, 1)
        video.append(Sighting(truth, [names[g] for g in shown], similarity))
    return video


def crowded_video(rng):
    """Everything could be anything, but nobody is ever missing: the older scorers agree on what to keep."""
    truth = list(range(3))
    predicted = list(range(100, 104))
    return [Sighting(truth, predicted, rng.uniform(0.5, 1, (3, 4))) for _ in range(8)]


def by_motmetrics(video):
    book = motmetrics.MOTAccumulator(auto_id=True)
    for frame in video:
        distance = np.where(frame.similarity >= 0.5, 1 - frame.similarity, np.nan)
        book.update(frame.truth, frame.predicted, distance)
    names = ["mota", "motp", "num_switches", "num_false_positives", "num_misses", "idf1", "idp", "idr"]
    return motmetrics.metrics.create().compute(book, metrics=names, return_dataframe=False)


@pytest.mark.filterwarnings("ignore")  # motmetrics divides by zero and uses what pandas is about to drop
@pytest.mark.parametrize("make", [separated_video, crowded_video])
def test_clear_and_idf1_against_motmetrics(make):
    rng = np.random.default_rng(0)
    for _ in range(100):
        video = make(rng)
        expected, found, tracks = by_motmetrics(video), clear(video), identity(video)
        assert found.switches == expected["num_switches"]
        assert found.invented == expected["num_false_positives"]
        assert found.missed == expected["num_misses"]
        assert found.mota == pytest.approx(expected["mota"])
        assert found.motp == pytest.approx(1 - expected["motp"])
        assert (tracks.idf1, tracks.precision, tracks.recall) == pytest.approx(
            (expected["idf1"], expected["idp"], expected["idr"])
        )


def ways(rows, columns):
    """Every one-to-one match of the smaller side."""
    small, large = sorted((rows, columns))
    for chosen in itertools.permutations(range(large), small):
        yield list(
            zip(range(rows), chosen, strict=True) if rows <= columns else zip(chosen, range(columns), strict=True)
        )


def naive_clear(video):
    """CLEAR with every match tried: first keep what held, then be as alike as possible."""
    pairs, missed, invented, switches, alike = 0, 0, 0, 0, 0.0
    known, before = {}, {}
    for truth, predicted, similarity in video:
        best, chosen = (-1, -1.0), []
        for way in ways(len(truth), len(predicted)):
            valid = [(r, c) for r, c in way if similarity[r, c] >= 0.5]
            held = sum(before.get(truth[r]) == predicted[c] for r, c in valid)
            value = (held, sum(similarity[r, c] for r, c in valid))
            if value > best:
                best, chosen = value, valid
        now = {truth[r]: predicted[c] for r, c in chosen}
        pairs, alike = pairs + len(now), alike + max(best[1], 0)
        missed, invented = missed + len(truth) - len(now), invented + len(predicted) - len(now)
        switches += sum(1 for g, p in now.items() if g in known and known[g] != p)
        known.update(now)
        before = now if truth and predicted else before
    return pairs, missed, invented, switches, alike


def test_clear_against_every_match():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        video = any_video(rng)
        found = clear(video)
        counts = (found.pairs, found.missed, found.invented, found.switches, found.similarity)
        assert counts == pytest.approx(naive_clear(video))


@pytest.mark.filterwarnings("ignore")
def test_idf1_against_motmetrics_on_anything():
    rng = np.random.default_rng(2)
    for _ in range(100):
        video = any_video(rng)
        if any(f.truth for f in video) and any(f.predicted for f in video):
            assert identity(video).idf1 == pytest.approx(by_motmetrics(video)["idf1"])


def naive_hota(video):
    """HOTA from its definition, pair by pair, with dictionaries and every match tried."""
    true_count, track_count = {}, {}
    for truth, predicted, _ in video:
        for g in truth:
            true_count[g] = true_count.get(g, 0) + 1
        for p in predicted:
            track_count[p] = track_count.get(p, 0) + 1
    soft = {}
    for truth, predicted, s in video:
        for r, c in itertools.product(range(len(truth)), range(len(predicted))):
            union = s[r].sum() + s[:, c].sum() - s[r, c]
            key = truth[r], predicted[c]
            soft[key] = soft.get(key, 0) + (s[r, c] / union if union > 0 else 0)
    align = {(g, p): v / (true_count[g] + track_count[p] - v) for (g, p), v in soft.items()}
    scores = []
    for alpha in ALPHAS:
        hits, alike, total_true, total_tracks = [], [], sum(true_count.values()), sum(track_count.values())
        for truth, predicted, s in video:
            value = lambda way: sum(align[truth[r], predicted[c]] * s[r, c] for r, c in way)  # noqa: B023, E731
            for r, c in max(ways(len(truth), len(predicted)), key=value):
                if s[r, c] >= alpha - 1e-12:
                    hits.append((truth[r], predicted[c]))
                    alike.append(s[r, c])
        shares = []
        for g, p in hits:
            tpa = hits.count((g, p))
            shares.append(tpa / (tpa + (true_count[g] - tpa) + (track_count[p] - tpa)))
        everything = total_true + total_tracks - len(hits)
        det = len(hits) / everything if everything else math.nan
        ass = sum(shares) / len(hits) if hits else 0.0
        loc = sum(alike) / len(hits) if hits else 1.0
        scores.append((math.sqrt(det * ass), det, ass if everything else math.nan, loc))
    return np.mean(scores, axis=0)


def test_hota_against_its_definition():
    rng = np.random.default_rng(3)
    for n in range(1000):
        video = separated_video(rng) if n % 3 == 0 else any_video(rng)
        found = hota(video)
        np.testing.assert_allclose((found.hota, found.det_a, found.ass_a, found.loc_a), naive_hota(video), atol=1e-9)


def test_thousands_of_videos_against_trackeval():
    """Recorded: what TrackEval (the MOTChallenge's own scorer) says of these 3000 videos, counted together.

    It was run once beside ours, video by video, and no count and no score of any of the 3000 differed.
    """
    rng = np.random.default_rng(11)
    makers = (any_video, separated_video, crowded_video)
    videos = [makers[n % 3](rng) for n in range(3000)]
    found = reduce(add, map(clear, videos))
    assert (found.pairs, found.missed, found.invented, found.switches) == (54398, 14328, 22325, 7582)
    assert found.similarity == pytest.approx(41392.56943889842)
    tracks = reduce(add, map(identity, videos))
    assert (tracks.right, tracks.missed, tracks.wrong) == (43940, 24786, 32783)
    whole = reduce(add, map(hota, videos))
    assert (whole.hota, whole.det_a, whole.ass_a, whole.loc_a) == pytest.approx(
        (0.3697117811215951, 0.499024672138047, 0.27718681250619537, 0.8334256260634948)
    )


def still(ids, tracks=None, frames=10):
    """Objects that never move, each covered exactly by its track."""
    tracks = tracks or [ids] * frames
    return [Sighting(ids, list(t), np.eye(len(ids))) for t in tracks]


def test_a_perfect_track_scores_one():
    video = still([1, 2, 3])
    assert (clear(video).mota, clear(video).motp, identity(video).idf1, hota(video).hota) == pytest.approx((1, 1, 1, 1))


def test_swapped_identities():
    """Two identities exchanged halfway: all is detected, half of each track is right."""
    video = still([1, 2], [[8, 9]] * 5 + [[9, 8]] * 5)
    assert clear(video).switches == 2
    assert clear(video).mota == pytest.approx(1 - 2 / 20)
    assert identity(video).idf1 == pytest.approx(0.5)
    assert hota(video).det_a == pytest.approx(1)
    assert hota(video).ass_a == pytest.approx(5 / 15)
    assert hota(video).hota == pytest.approx(math.sqrt(1 / 3))


def test_nothing_predicted_nothing_there_and_nothing_at_all():
    silent = [Sighting([1, 2], [], np.zeros((2, 0)))] * 3
    assert (clear(silent).mota, identity(silent).idf1, hota(silent).hota) == (0, 0, 0)
    assert math.isnan(clear(silent).motp)
    invented = [Sighting([], [7], np.zeros((0, 1)))] * 3
    assert math.isnan(clear(invented).mota)
    assert clear(invented).invented == 3
    assert (identity(invented).idf1, hota(invented).hota) == (0, 0)
    for empty in ([], [Sighting([], [], np.zeros((0, 0)))]):
        assert math.isnan(clear(empty).mota)
        assert math.isnan(identity(empty).idf1)
        assert math.isnan(hota(empty).hota)


def test_mota_can_be_negative():
    assert clear([Sighting([1], [5, 6, 7], np.zeros((1, 3)))]).mota == -3


def test_a_similarity_of_exactly_a_half_counts():
    video = [Sighting([1], [2], np.array([[0.5]]))]
    assert clear(video).pairs == 1
    assert identity(video).right == 1
    assert hota(video).det_a == pytest.approx(10 / 19)


def test_a_gap_does_not_forget_who_it_was():
    gone = Sighting([], [9], np.zeros((0, 1)))
    same = [Sighting([1], [9], np.ones((1, 1))), gone, Sighting([1], [9], np.ones((1, 1)))]
    other = [Sighting([1], [9], np.ones((1, 1))), gone, Sighting([1], [8], np.ones((1, 1)))]
    assert clear(same).switches == 0
    assert clear(other).switches == 1


def test_clear_keeps_a_pair_that_still_holds_though_another_is_more_alike():
    video = [Sighting([1], [5], np.array([[0.9]])), Sighting([1], [5, 6], np.array([[0.6, 0.95]]))]
    assert clear(video).switches == 0
    assert clear(video).similarity == pytest.approx(0.9 + 0.6)


@pytest.mark.parametrize("score", [clear, identity, hota])
def test_an_identity_seen_twice_in_a_frame_is_refused(score):
    with pytest.raises(ValueError, match="predicted identity 7 is in one frame twice"):
        score([Sighting([1], [7, 7], np.ones((1, 2)))])


def test_videos_add_up():
    """Identities of different videos have nothing to do with each other, so scores are of summed counts."""
    rng = np.random.default_rng(4)
    videos = [separated_video(rng) for _ in range(4)]
    renamed = [
        [Sighting([g + 1000 * n for g in f.truth], [p + 1000 * n for p in f.predicted], f.similarity) for f in video]
        for n, video in enumerate(videos)
    ]
    whole = list(itertools.chain(*renamed))
    assert reduce(add, map(identity, videos)).idf1 == pytest.approx(identity(whole).idf1)
    summed, joined = reduce(add, map(hota, videos)), hota(whole)
    assert (summed.hota, summed.ass_a, summed.loc_a) == pytest.approx((joined.hota, joined.ass_a, joined.loc_a))
    assert reduce(add, map(clear, videos)).mota == pytest.approx(clear(whole).mota)


def test_box_iou_against_pycocotools():
    rng = np.random.default_rng(5)
    for _ in range(100):
        g, p = (np.c_[rng.uniform(0, 50, (n, 2)), rng.uniform(1, 40, (n, 2))] for n in rng.integers(1, 8, 2))
        np.testing.assert_allclose(box_iou(g, p), coco.iou(g, p, [0] * len(p)), atol=1e-12)
    empty = np.zeros((1, 4))
    assert box_iou(empty, empty).tolist() == [[0.0]]
    assert box_iou(empty, np.zeros((0, 4))).shape == (1, 0)
