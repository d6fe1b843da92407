import numpy as np
import pytest
import torch
from pycocotools import mask as coco
from sklearn.metrics import adjusted_rand_score, mutual_info_score

from evaluating import Seer, tiny
from loci import random
from loci.data.clip import CONTAINED, VISIBLE, Clip
from loci.errors import UserError
from loci.evaluate import clevr, gestalt, gestalt_bits, lesions, tracking
from loci.evaluate import metrics_masks as masks_
from loci.evaluate.gestalt import Codes
from loci.evaluate.tracking import Scores, Seen
from loci.evaluate.watch import clips_in_batches, forecast, keys_of, watch
from loci.model import Code
from loci.worlds.moving_mnist import MovingMnist

SOURCE = MovingMnist(split="test", length=12)


def rows(table):
    return {row[0]: row[1] for row in table.rows}


def test_still_images_are_scored_on_the_masks_alone():
    still = MovingMnist(split="test", length=1)

    class Patient(Seer):
        seen = 0

        def step(self, frame, state, **more):
            Patient.seen += 1
            return super().step(frame, state, **more)

    report = clevr.evaluate(Patient(still), still, count=3, iterations=5)
    assert Patient.seen == 5
    ours = report.tables[0].rows[-1]
    assert ours == ("ours", 100, 100, 100)
    assert report.facts["objects"] == 6
    assert report.tables[0].rows[0][1:3] == (83.3, 96.8)


def test_a_source_without_masks_cannot_be_segmented():
    class Bare(MovingMnist):
        def clips(self, indices, **more):
            return Clip(super().clips(indices, **more).frames)

    with pytest.raises(UserError, match="does not know visible"):
        clevr.evaluate(tiny((64, 64)), Bare(length=1), count=1)


def test_one_that_knows_the_future_tracks_perfectly():
    report = tracking.evaluate(Seer(SOURCE), SOURCE, count=3, batch=2)
    values = rows(report.tables[0])
    identities = ("MOTA", "IDF1", "HOTA", "MOTA (boxes)", "IDF1 (boxes)", "HOTA (boxes)")
    for name in ("FG-ARI", "mIoU", "FG-ARI (video)", "mIoU (video)", *identities):
        assert values[name] == pytest.approx(1), name
    assert values["L2_object"] == 0
    assert values["identity switches"] == 0
    assert values["position error (pixels), mean"] < 1e-4
    assert report.tables[1].rows[0][0] == "visible"


def crossing(swap):
    """Two squares for ten frames, hidden from the sixth to the seventh; `swap` exchanges the slots after that."""
    labels = torch.zeros(1, 10, 32, 32, dtype=torch.int16)
    truth = torch.zeros(1, 10, 2, 32, 32, dtype=torch.bool)
    places = torch.zeros(1, 10, 2, 2)
    for t in range(10):
        for n in range(2):
            truth[0, t, n, 16 * n : 16 * n + 6, t : t + 6] = t not in (5, 6)
            slot = 1 - n if swap and t > 6 else n
            labels[0, t][truth[0, t, n]] = slot + 1
            places[0, t, slot] = torch.tensor([2 * (16 * n + 2.5) / 31 - 1, 2 * (t + 2.5) / 31 - 1])
    state = torch.full((1, 10, 2), VISIBLE)
    state[:, 5:7] = CONTAINED
    position = torch.stack((places[:, :, 0], places[:, :, 1]), 2)
    if swap:
        position[:, 7:] = position[:, 7:].flip(2)
    padded = torch.cat((truth[:, :1], truth), 1)
    frames = torch.zeros(1, 11, 3, 32, 32, dtype=torch.uint8)
    clip = Clip(
        frames,
        visible=padded,
        position=torch.cat((position[:, :1], position), 1),
        state=torch.cat((state[:, :1], state), 1),
    )
    scores = Scores()
    tracking.score(scores, Seen(labels, places), clip, (32, 32))
    return tracking.tables(scores)


def test_boxes_against_pycocotools():
    labels = random.integers(random.key(9, "boxes"), 5, (400, 6, 7))
    labels = torch.where(random.uniform(random.key(9, "empty"), labels.shape) < 0.8, 0, labels)
    found = tracking.boxes(labels)
    assert found.shape == (400, 4, 4)
    for t, frame in enumerate(labels.numpy()):
        for n in range(4):
            code = coco.encode(np.asfortranarray((frame == n + 1).astype(np.uint8)))
            assert found[t, n].tolist() == coco.toBbox(code).tolist() or not (frame == n + 1).any()
            assert found[t, n, 2:].all() == (frame == n + 1).any()
    assert tracking.boxes(torch.zeros(3, 4, 4, dtype=torch.int16)).shape == (3, 0, 4)


def test_a_blob_follows_a_thin_digit_by_its_box():
    """Its mask overlaps with the digit's strokes by less than half, so that masks alone call it a failure."""
    source = MovingMnist(split="test", length=6, digits=1)

    class Blob(Seer):
        def output(self, clip, time, frame):
            seen = super().output(clip, time, frame)
            blob = torch.zeros_like(seen.masks)
            (box,) = tracking.boxes(seen.masks[0, :1].to(torch.int16))
            left, top, width, height = map(int, box[0])
            blob[0, 0, top : top + height, left : left + width] = 1
            blob[0, -1] = 1 - blob[0, 0]
            seen.masks = blob
            return seen

    values = rows(tracking.evaluate(Blob(source), source, count=1).tables[0])
    assert values["IDF1"] < 0.5
    assert (values["MOTA (boxes)"], values["IDF1 (boxes)"], values["HOTA (boxes)"]) == pytest.approx((1, 1, 1))


def test_an_exchange_of_slots_costs_identity_and_permanence():
    kept, swapped = rows(crossing(False)[0]), rows(crossing(True)[0])
    assert swapped["IDF1 (boxes)"] == pytest.approx(10 / 16)
    assert (kept["MOTA"], kept["IDF1"], kept["HOTA"]) == pytest.approx((1, 1, 1))
    assert (kept["identity switches"], swapped["identity switches"]) == (0, 2)
    assert swapped["FG-ARI"] == pytest.approx(1)
    assert swapped["FG-ARI (video)"] < 0.6
    assert swapped["IDF1"] == pytest.approx(10 / 16)
    again = {row[0]: row[-2:] for row in crossing(False)[1].rows}, {row[0]: row[-2:] for row in crossing(True)[1].rows}
    assert again[0]["contained"] == (1, 2)
    assert again[1]["contained"] == (0, 2)


def test_frames_in_which_digits_overlap_are_told_apart():
    whole = SOURCE.clips(range(6)).whole
    by_hand = [[not (whole[b, t, 0] & whole[b, t, 1]).any() for t in range(12)] for b in range(6)]
    assert tracking.apart(whole).tolist() == by_hand
    assert 0 < sum(map(sum, by_hand)) < 72


def test_fg_ari_where_nothing_overlaps_is_a_mean_over_those_frames_alone():
    clip = SOURCE.clips(range(6))
    truth = masks_.labels_of_objects(clip.visible[:, 1:])
    labels = truth.clone()
    labels[..., 32:] = labels[..., 32:].clamp(max=1)
    scores = Scores()
    tracking.score(scores, Seen(labels, torch.zeros(6, 11, 2, 2)), clip, (64, 64))
    chosen = [(b, t) for b in range(6) for t in range(11) if not (clip.whole[b, t + 1].sum(0) > 1).any()]
    expected = []
    for b, t in chosen:
        shown = truth[b, t] > 0
        expected.append(adjusted_rand_score(truth[b, t][shown], labels[b, t][shown]))
    assert 0 < len(chosen) < 66
    assert scores.mean("FG-ARI (frames without overlap)") == pytest.approx(np.mean(expected))
    assert scores.mean("FG-ARI") != pytest.approx(np.mean(expected))


def test_specks_are_not_reported_and_hidden_objects_not_asked_for():
    labels = torch.zeros(1, 200, 200, dtype=torch.int16)
    labels[0, 0, 0] = 1
    labels[0, 10:20, 10:20] = 2
    truth = torch.zeros(1, 200, 200, dtype=torch.int64)
    truth[0, 10:20, 10:20] = 1
    truth[0, 50, 50:53] = 2
    (sighting,) = tracking.sightings(labels, truth, torch.tensor([[VISIBLE, CONTAINED]]))
    assert (sighting.truth, sighting.predicted) == ([0], [1])
    assert sighting.similarity.tolist() == [[1.0]]


def test_a_network_that_sees_nothing_scores_nothing():
    report = tracking.evaluate(tiny((64, 64)), SOURCE, count=1)
    values = rows(report.tables[0])
    assert values["L2_object"] > 0
    assert values["objects' frames held by no slot"] == 22
    assert report.pictures["slots"].shape[2] == 3


def test_no_noise_is_no_lesion():
    model = tiny((64, 64), slots=3)
    (clip,) = clips_in_batches(SOURCE, 2, labels=False)
    with torch.no_grad():
        whole = torch.stack([output.frame for output in forecast(model, clip, 1, 4, 6)], 1)
        same = torch.stack([o.frame for o in lesions.lesioned(model, clip, 1, 4, 6, 0.0, 0.0)], 1)
        noisy = torch.stack([o.frame for o in lesions.lesioned(model, clip, 1, 4, 6, 1.0, 1.0)], 1)
    torch.testing.assert_close(same, whole, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(noisy, whole, atol=1e-3)


def test_noise_has_the_level_asked_for_and_is_a_function_of_clip_and_frame():
    (clip,) = clips_in_batches(SOURCE, 3, labels=False)
    code = Code(torch.zeros(3, 500, 3), torch.zeros(3, 500, 16), torch.zeros(3, 500))
    noise = lesions.Noise(keys_of(clip, 0), position=0.3, gestalt=0.7)
    noisy = noise.at(5)(code)
    assert noisy.position.std().item() == pytest.approx(0.3, rel=0.05)
    assert noisy.gestalt.std().item() == pytest.approx(0.7, rel=0.05)
    assert (noisy.priority == 0).all()
    torch.testing.assert_close(noise.at(5)(code).gestalt, noisy.gestalt)
    assert not torch.equal(noise.at(6)(code).gestalt, noisy.gestalt)
    (alone,) = clips_in_batches(SOURCE, 1, labels=False)
    one = lesions.Noise(keys_of(alone, 0), 0.3, 0.7).at(5)(Code(*(value[:1] for value in code)))
    torch.testing.assert_close(one.position, noisy.position[:1])


def test_pairs_of_levels_side_by_side_are_the_pairs_one_by_one():
    """Noise is a function of the clip, so that it makes no difference how many cells are watched at once."""
    from loci.evaluate import cater
    from loci.worlds.cater import Cater

    model, source, levels = (
        tiny((32, 32), slots=3, snitch=True),
        Cater(split="test", size=(32, 32), length=5),
        (0.0, 1.0),
    )
    reports = [lesions.cater(model, source, count=3, levels=levels, batch=batch) for batch in (None, 1, 3, 5)]
    clip = source.clips(range(3))
    for report in reports:
        assert report.facts["clips"] == 3
        for n, (what, where) in enumerate((g, p) for g in levels for p in levels):
            noise = lesions.Noise(keys_of(clip, 0), where, what)
            with torch.no_grad():
                _, error, _ = cater.follow_clip(model, clip, cater.by_head, 0, None, noise.at)
            assert report.curves["L2_object grid"][n] == pytest.approx(error.mean().item(), rel=1e-4)
    assert reports[0].curves["L2 grid"] == pytest.approx(reports[1].curves["L2 grid"], rel=1e-4)
    assert len(set(reports[0].curves["L2 grid"])) == 4


def test_the_lesion_report_has_a_grid_and_three_lines():
    levels = (0.0, 0.5)
    report = lesions.moving_mnist(tiny((64, 64)), SOURCE, count=2, levels=levels, given=3, steps=2)
    names = [row[0] for row in report.tables[0].rows]
    assert names[:3] == ["MSE, position", "MSE, Gestalt", "MSE, both"]
    grid = report.curves["MSE grid"]
    lines = {row[0]: row[1:] for row in report.tables[0].rows}
    assert len(grid) == 4
    assert lines["MSE, position"] == (grid[0], grid[1])
    assert lines["MSE, Gestalt"] == (grid[0], grid[2])
    assert lines["MSE, both"] == (grid[0], grid[3])


@pytest.mark.parametrize("part", lesions.PARTS)
def test_a_decoder_lesion_changes_one_part(part):
    code = Code(torch.full((1, 4, 3), 0.5), torch.full((1, 4, 8), 0.5), torch.arange(4.0)[None])
    changed = lesions.altered(code, part, random.key(3))
    same = {
        "position": torch.equal(changed.position[..., :2], code.position[..., :2]),
        "size": torch.equal(changed.position[..., 2], code.position[..., 2]),
        "Gestalt": torch.equal(changed.gestalt, code.gestalt),
        "priority": torch.equal(changed.priority, code.priority),
    }
    assert {name: kept for name, kept in same.items() if name != part} == dict.fromkeys(
        set(lesions.PARTS) - {part}, True
    )
    assert not same[part]
    assert changed.position[..., :2].abs().max() <= 0.9
    if part == "Gestalt":
        assert set(changed.gestalt.unique().tolist()) <= {0.0, 1.0}


def test_lesions_in_pictures():
    model = tiny((64, 64))
    assert lesions.imagined_pictures(model, SOURCE, given=3, steps=4).shape[1] > 4 * 64
    assert lesions.decoder_pictures(model, SOURCE, clips=1).shape[1] > 6 * 64


def test_lesions_reach_the_encoders_code():
    model = tiny((64, 64))
    (clip,) = clips_in_batches(SOURCE, 1, labels=False)
    seen = []

    def at(time):
        def disturb(code):
            seen.append((time, tuple(code.gestalt.shape)))
            return code

        return disturb

    with torch.no_grad():
        list(watch(model, clip, 0, disturb=at))
    assert seen == [(t, (1, 2, 8)) for t in range(12)]


def kept_codes(n=60):
    """Two kinds of objects with codes apart, and noise on the rest."""
    key = random.key(11)
    code = 0.1 * random.uniform(key, (n, 8))
    code[: n // 2, 0] += 1
    kind = (torch.arange(n) >= n // 2).long()
    return Codes([code], [torch.full((n, 1), 0.1)], {"shape": [kind]})


def test_clusters_of_codes_agree_with_what_the_objects_are():
    report = gestalt.report(tiny((64, 64)), kept_codes(), {"shape": ("cube", "cone")})
    bits, table, axes = report.tables
    assert rows(bits)["numbers in a code"] == 8
    assert table.header == ("cluster", "codes", "shape")
    assert sum(row[1] for row in table.rows[:-1]) == 60
    assert all("100%" in row[2] for row in table.rows[:-1] if row[1])
    assert {"map", "walks"} == set(report.pictures)
    assert len({row[0] for row in axes.rows}) >= 2


def test_a_walk_goes_through_its_start_within_the_codes_range():
    start, step = torch.full((8,), 0.5), torch.eye(8)[2].double().numpy()
    codes = gestalt.walk_codes(start, 0.1 * step, reach=3)
    torch.testing.assert_close(codes[gestalt.STEPS // 2], start)
    assert codes[0, 2] == pytest.approx(0.2)
    assert codes[-1, 2] == pytest.approx(0.8)
    assert gestalt.walk_codes(start, step)[-1].max() == 1


def test_axes_of_colour_and_of_shape_are_told_apart():
    def walk(axis, colour, shape):
        return gestalt.Walk(0, axis, torch.zeros(8).numpy(), colour, shape)

    hue, form = gestalt.disentangled([walk(0, 0.5, 0.5), walk(1, 0.4, 0.0), walk(2, 0.01, 0.6)])
    assert (hue.axis, form.axis) == (1, 2)


def test_too_few_codes_are_said_to_be_too_few():
    with pytest.raises(UserError, match="only 0 codes of visible objects"):
        gestalt.collect(tiny((64, 64)), SOURCE, clips=1)


def test_what_bits_say_against_scikit_learn():
    key = random.key(5, "bits")
    kind = random.integers(random.fold(key, "kind"), 4, (300,))
    bits = random.uniform(random.fold(key, "bits"), (300, 6)) > 0.5
    bits[:, 0] = kind >= 2  # one bit of two
    bits[:, 1] = True
    found = gestalt_bits.information(bits, kind)
    for d in range(6):
        expected = mutual_info_score(kind.numpy(), bits[:, d].numpy()) / np.log(2)
        assert found[d].item() == pytest.approx(expected, abs=1e-9)
    assert found[0] > 0.9
    assert found[1] == 0


def test_bits_that_say_nothing_are_not_counted():
    codes = torch.zeros(100, 5)
    codes[:50, 0] = 1  # half
    codes[:2, 1] = 0.97  # as rare as may be
    codes[0, 2] = 1  # too rare
    codes[:, 3] = 1  # always
    codes[:, 4] = 0.4  # never, and undecided
    kind = (torch.arange(100) < 50).long()
    kind[99] = -1
    values = rows(gestalt_bits.table(codes, {"shape": kind, "only": torch.zeros(100)}))
    assert values["carry information: on in 2% to 98% of the codes"] == 2
    assert values["within 0.1 of 0 or 1 (%)"] == pytest.approx(80)
    entropies = [-p * np.log2(p) - (1 - p) * np.log2(1 - p) for p in (0.5, 0.02, 0.01)]
    assert values["sum of their entropies (bits)"] == pytest.approx(sum(entropies))
    assert values["different codes among 100"] == 4
    assert values["tell 0.1 bits or more of shape"] == 1
    assert values["most that one tells of shape (bits)"] == pytest.approx(1, abs=1e-3)
    assert not any("only" in name for name in values)


def test_directions_of_the_variance():
    codes = torch.zeros(40, 7)
    codes[:, 0], codes[:, 3] = torch.arange(40.0), (torch.arange(40.0) - 19.5).abs()
    assert gestalt_bits.axes(codes, 0.7) == 1
    assert gestalt_bits.axes(codes) == 2
    assert gestalt_bits.axes(torch.ones(5, 3)) == 0
