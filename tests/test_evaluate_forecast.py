import pytest
import torch

from evaluating import Seer, tiny
from loci.errors import UserError
from loci.evaluate import clevrer, metrics, moving_mnist, paper
from loci.evaluate.watch import clips_in_batches, find_background, forecast, keys_of, watch
from loci.worlds.moving_mnist import MovingMnist

SOURCE = MovingMnist(split="test", length=20)


def test_one_that_knows_the_future_makes_no_error():
    curves, rows = moving_mnist.predict(Seer(SOURCE), SOURCE, count=3, given=4, steps=16, batch=2)
    assert curves.count == 3
    assert curves.mean("mse").max() == 0
    assert curves.mean("ssim").min() > 1 - 1e-6
    for truth, prediction in zip(rows[::2], rows[1::2], strict=True):
        assert all((a == b).all() for a, b in zip(truth, prediction, strict=True))


def test_a_frame_too_late_is_an_error_of_that_frame():
    curves, _ = moving_mnist.predict(Seer(SOURCE, late=1), SOURCE, count=3, given=4, steps=16, batch=3)
    frames = SOURCE.clips(range(3)).frames[:, :, :1]
    by_hand = metrics.mse(frames[:, 3:19], frames[:, 4:20]).mean(0)
    torch.testing.assert_close(curves.mean("mse"), by_hand.double())
    spread = metrics.mse(frames[:, 3:4], frames[:, 4:5]).double().std() / 3**0.5
    torch.testing.assert_close(curves.doubt()[0], spread)


def test_the_table_has_both_readings_beside_the_paper():
    report = moving_mnist.evaluate({"Seer": Seer(SOURCE, late=1)}, SOURCE, count=2, given=5, steps=12)
    for table, kind, told in zip(report.tables, ("mse", "ssim"), (35.6, 0.913), strict=True):
        assert table.header[2:] == ("T=10",)
        rows = {row[:2]: row[2:] for row in table.rows}
        assert rows["PhyDNet (paper)", "not said"] == (told,)
        curve = report.curves[f"Seer {kind}"]
        assert rows["Seer", "mean over 1…T"][0] == pytest.approx(sum(curve[:10]) / 10)
        assert rows["Seer", "value at T"][0] == pytest.approx(curve[9])
    assert len(paper.MOVING_MNIST_MSE["Loci"]) == len(paper.HORIZONS)


def test_closed_loop_is_what_the_network_imagines():
    model = tiny((64, 64), slots=3)
    (clip,) = clips_in_batches(SOURCE, 2, labels=False)
    with torch.inference_mode():
        parts = list(forecast(model, clip, 3, given=4, steps=6, chunk=2))
        state = model.start(2, clip.background[:, 0], keys=keys_of(clip, 3))
        state, seen = model.observe(clip.frames[:, :4], model.bootstrap(clip.frames[:, 0], state))
        _, imagined = model.imagine(state, 5)
    frames = torch.cat([part.frame for part in parts], 1)
    torch.testing.assert_close(frames, torch.cat((seen.frame[:, -1:], imagined.frame), 1))


def test_a_clip_is_seen_alike_whatever_the_batch():
    model = tiny((64, 64))
    with torch.inference_mode():
        whole = [list(watch(model, clip, 0))[4][1].code.position for clip in clips_in_batches(SOURCE, 3, batch=3)]
        apart = [list(watch(model, clip, 0))[4][1].code.position for clip in clips_in_batches(SOURCE, 3, batch=1)]
        other = [list(watch(model, clip, 1))[4][1].code.position for clip in clips_in_batches(SOURCE, 3, batch=3)]
    torch.testing.assert_close(torch.cat(whole), torch.cat(apart), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(torch.cat(whole), torch.cat(other), atol=1e-3)


def test_batches_cover_the_count_and_report_progress():
    told = []
    clips = list(clips_in_batches(SOURCE, 5, batch=2, labels=False, advance=told.append))
    assert torch.cat([clip.index for clip in clips]).tolist() == [0, 1, 2, 3, 4]
    assert told == [2, 2, 1]
    with pytest.raises(UserError, match="count 0"):
        next(clips_in_batches(SOURCE, 0))


def test_too_short_clips_are_refused():
    (clip,) = clips_in_batches(MovingMnist(length=3), 1)
    with pytest.raises(UserError, match="3 frames are too short to be given 4"):
        next(forecast(tiny((64, 64)), clip, 0, 4, 2))


class WithoutBackground:
    """A still scene with a moving square, that does not say what it looks like without."""

    size, length, names = (32, 32), 40, {}

    def __len__(self):
        return 3

    def clips(self, indices, *, labels=True, device="cpu"):
        from loci.data.clip import Clip

        frames = torch.full((len(indices), self.length, 3, *self.size), 90, dtype=torch.uint8)
        for b, n in enumerate(indices):
            for t in range(self.length):
                frames[b, t, :, (t + 7 * n) % 28 :, t % 28 :][..., :4, :4] = 255
        return Clip(frames, index=torch.tensor(indices))


def test_a_scene_is_found_where_clips_bring_none():
    scene = find_background(WithoutBackground())
    assert scene.shape == (3, 32, 32)
    assert ((scene.int() - 90).abs() <= 3).all()
    assert find_background(SOURCE) is None


def test_clevrer_scores_one_that_knows_the_future():
    protocol = clevrer.Protocol("try", 4, 6, stride=2, size=(32, 32), marks=(1, 6))
    thin = MovingMnist(split="test", length=20)

    class Halved(Seer):
        def known(self, frame):
            return clevrer.thinned(super().known(frame), 2, 10)

    report = clevrer.evaluate(Halved(thin), thin, protocol, count=2, batch=2)
    assert report.facts["clips"] == 2
    assert max(report.curves["MSE per pixel"]) < 1e-9
    means = {row[0]: row[-1] for row in report.tables[0].rows}
    assert means["mIoU"] == pytest.approx(1)
    assert means["FG-ARI"] == pytest.approx(1)
    assert means["position error (pixels)"] < 1e-4
    assert dict(report.tables[1].rows)["mIoU"] == pytest.approx(1)


def test_intersections_are_over_unions():
    """A copied implementation takes the sum, so that a perfect mask scores a half."""
    protocol = clevrer.Protocol("try", 4, 6, marks=(1,))
    report = clevrer.evaluate(Seer(SOURCE), SOURCE, protocol, count=2)
    means = {row[0]: row[-1] for row in report.tables[0].rows}
    assert means["mIoU"] == pytest.approx(1)
    assert means["SSIM"] == pytest.approx(1)


def test_places_are_compared_in_pixels_of_the_object_a_slot_began_with():
    protocol = clevrer.Protocol("try", 4, 6, marks=(1,))
    report = clevrer.evaluate(Seer(SOURCE, late_places=3), SOURCE, protocol, count=2)
    position = SOURCE.clips(range(2)).position
    expected = ((position[:, 4:10] - position[:, 1:7]) * 63 / 2).norm(dim=-1)
    means = {row[0]: row[-1] for row in report.tables[0].rows}
    assert means["position error (pixels)"] == pytest.approx(expected.mean().item(), rel=1e-4)
