import numpy as np
import pytest
import torch

from evaluating import Overwriting, Seer, tiny
from loci.errors import UserError
from loci.evaluate import clevrer, figures, metrics, moving_mnist, paper
from loci.evaluate.quick import Quick
from loci.evaluate.watch import ENOUGH, clips_in_batches, equal, find_background, forecast, keys_of, watch
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


def test_black_frames_err_by_what_there_is():
    curves, rows = moving_mnist.predict(moving_mnist.Black((64, 64)), SOURCE, count=3, given=4, steps=5)
    light = (SOURCE.clips(range(3)).frames[:, 4:9, 0].double() / 255).square().sum((2, 3)).mean(0)
    torch.testing.assert_close(curves.mean("mse"), light, rtol=1e-5, atol=0)
    assert all((picture == 0).all() for row in rows[1::2] for picture in row)


def test_closed_loop_is_what_the_network_imagines():
    model = tiny((64, 64), slots=3)
    (clip,) = clips_in_batches(SOURCE, 2, labels=False)
    with torch.no_grad():
        parts = [output.frame for output in forecast(model, clip, 3, given=4, steps=6)]
        state = model.start(2, clip.background[:, 0], keys=keys_of(clip, 3))
        state, seen = model.observe(clip.frames[:, :4], model.bootstrap(clip.frames[:, 0], state))
        _, imagined = model.imagine(state, 5)
    torch.testing.assert_close(torch.stack(parts, 1), torch.cat((seen.frame[:, -1:], imagined.frame), 1))


def test_a_clip_is_seen_alike_whatever_the_batch():
    model = tiny((64, 64))
    with torch.no_grad():
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


@pytest.mark.parametrize(("count", "most"), [(10, 4), (10_000, 1024), (1650, 258), (3, 5), (7, 1), (1, 1)])
def test_batches_are_as_few_and_as_equal_as_can_be(count, most):
    size = equal(count, most)
    assert size <= most
    assert -(-count // size) == -(-count // most)
    assert size * -(-count // size) - count < -(-count // size)


def test_it_stops_after_a_batch_when_told_that_it_is_enough():
    left = [None, ENOUGH]
    curves, _ = moving_mnist.predict(
        Seer(SOURCE), SOURCE, count=9, given=4, steps=3, batch=2, advance=lambda _: left.pop(0)
    )
    assert curves.count == 4
    report = moving_mnist.evaluate(
        {"Seer": Seer(SOURCE)}, SOURCE, count=9, given=4, steps=3, batch=3, advance=lambda _: ENOUGH
    )
    assert report.facts["sequences"] == 3


def test_what_recorded_steps_overwrite_is_kept_in_time(monkeypatch):
    """Every experiment says the same of steps whose results are gone with the next one."""
    from loci.evaluate import cater, cater_readout, clevr, tracking
    from loci.worlds.cater import Cater

    model = tiny((32, 32), slots=3, snitch=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # so that it is not all background
    digits, scenes = MovingMnist(split="test", size=(32, 32), length=9), Cater(size=(32, 32), length=6)
    protocol = clevrer.Protocol("try", 3, 4, marks=(1,))
    quick = []

    def everything():
        curves, rows = moving_mnist.predict(model, digits, count=3, given=3, steps=5, batch=2)
        found = cater.follow(model, scenes, count=2, seeds=(0, 1), batch=1)
        latents = cater_readout.extract(model, scenes, count=2, every=2, batch=1)
        reports = {
            "tracked": tracking.evaluate(model, digits, count=3, batch=2),
            "clevr": clevr.evaluate(model, digits, count=3, batch=2, iterations=4),
            "clevrer": clevrer.evaluate(model, digits, protocol, count=3, batch=2),
        }
        values = {f"{name} {of}": value for name, report in reports.items() for of, value in numbers(report)}
        values |= {name: curves.mean(name) for name in ("mse", "ssim")}
        values |= {"said": found.said, "error": found.object_error, "held": found.permanence.state}
        return {**values, **vars(latents), "away": found.permanence.error, "rows": torch.from_numpy(np.array(rows))}

    def numbers(report):
        for table in report.tables:
            for row in table.rows:
                values = [float("nan") if value is None else value for value in row[1:]]
                yield f"{table.title} {row[0]}", torch.tensor(values, dtype=torch.float64)

    plain = everything()

    def quickened(model, *_, **__):
        quick.append(Quick(model, Overwriting(model)))
        return quick[-1]

    for module in (moving_mnist, cater, cater_readout, tracking, clevr, clevrer):
        monkeypatch.setattr(module, "quickened", quickened)
    fast = everything()
    assert all(one.fast.calls > 0 for one in quick)
    assert len(quick) == 6
    for name, value in plain.items():
        torch.testing.assert_close(fast[name], value, equal_nan=True, msg=name)


def test_the_recorded_steps_themselves_say_the_same():
    """`FastWatch` as it is, going through its motions on a CPU."""
    from loci.kernels.fast import FastWatch

    model = tiny((64, 64), slots=3)
    quick = Quick(model, FastWatch(model, rehearse=True))
    (clip,) = clips_in_batches(SOURCE, 2, labels=False)
    with torch.no_grad():
        plain = [output.frame for output in forecast(model, clip, 1, 3, 4)]
        fast = [output.frame.clone() for output in forecast(quick, clip, 1, 3, 4)]
        seen = [output.code.position for _, output in watch(model, clip, 1)]
        quickly = [output.code.position.clone() for _, output in watch(quick, clip, 1)]
    torch.testing.assert_close(fast, plain)
    torch.testing.assert_close(quickly, seen)


def test_only_the_first_batch_size_is_recorded():
    model = tiny((64, 64))
    quick = Quick(model, Overwriting(model))
    calls = []
    with torch.no_grad():
        for clip in clips_in_batches(SOURCE, 5, batch=2, labels=False):
            list(forecast(quick, clip, 0, 2, 3))
            calls.append(quick.fast.calls)
    assert calls == [4, 8, 8]


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
    assert report.pictures["strip"].shape[0] > 4 * figures.TALL  # truth and imagination of both clips
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
