import io
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

import loci.track
from loci.errors import UserError
from loci.model import Code, State, StepOutput
from loci.model.background import BackgroundConfig, MovingBackground
from loci.track.background import mixture
from loci.track.clock import Clock
from loci.track.fit import Fit
from loci.track.scene import Scene, scene_of
from loci.track.tracker import follow
from loci.track.video_in import Frame, open_video
from loci.track.video_out import video_out

SIZE = (24, 32)
COLOURS = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


class Finder(torch.nn.Module):
    """Stands in for a trained network: slot k has what shows the k-th colour, and stays where that was last."""

    size = SIZE
    device = torch.device("cpu")
    config = SimpleNamespace(slots=3, gestalt=4, bootstrap=1)

    def start(self, batch, background, seed, slots):
        slots = slots or 3
        self.shown = background
        zeros = torch.zeros(1, slots)
        code = Code(torch.zeros(1, slots, 3), torch.zeros(1, slots, 4), torch.arange(slots)[None] * 25.0)
        masks = torch.zeros(1, slots + 1, *SIZE)
        empty = torch.zeros(1, 3, *SIZE)
        time = torch.zeros(1, dtype=torch.int64)
        return State(code, empty, masks, empty, (), zeros, zeros, zeros, code, time, time, True)

    def step(self, frame, state, background=None, noise=False, disturb=None):
        self.shown = self.shown if background is None else background
        slots = state.claimed.shape[1]
        near = ((frame.float() / 255 - COLOURS[:slots, :, None, None]).abs().amax(1) < 0.45).float()[None]
        rows, columns = torch.linspace(-1, 1, SIZE[0]), torch.linspace(-1, 1, SIZE[1])
        area = near.sum((2, 3))
        place = torch.stack([(near * rows[:, None]).sum((2, 3)), (near * columns).sum((2, 3))], -1)
        place = torch.where(area[..., None] > 0, place / area[..., None].clamp(min=1), state.code.position[..., :2])
        code = Code(torch.cat([place, torch.full((1, slots, 1), 0.1)], 2), state.code.gestalt + 1, state.code.priority)
        masks = torch.cat([near, 1 - near.amax(1, keepdim=True)], 1)
        visible = near.amax((2, 3))
        state = state._replace(code=code, masks=masks, visible=visible, claimed=state.claimed.maximum(visible))
        logits = torch.zeros(1, slots, 3, *SIZE)
        out = StepOutput(
            frame=frame, masks=masks, colours=logits, code=code, percept=code, searched=code, view_logits=logits,
            uncovered=None, visible=visible, claimed=state.claimed > 0.5, error=frame, gates=visible,
            snitch=None, choice=None,
        )  # fmt: skip
        return state, out


def video(length, size=(96, 128), show=lambda k, t: True):
    """A red square that moves to the right, a blue one that moves down."""
    for t in range(length):
        pixels = np.zeros((*size, 3), np.uint8)
        if show(1, t):
            pixels[20:40, 10 + 4 * t : 30 + 4 * t, 0] = 255
        if show(0, t):
            pixels[4 * t : 4 * t + 16, 90:110, 2] = 255
        yield Frame(t, t / 10, pixels)


def tracked(frames, size=(96, 128), **options):
    fit = Fit.of(size, SIZE)
    scene = Scene(np.zeros((*SIZE, 3), np.uint8), None)
    return list(follow(Finder(), iter(frames), fit, scene, **options))


@pytest.mark.parametrize("size", [(96, 128), (96, 200)])
def test_places_boxes_and_masks_are_in_the_pixels_of_the_video(size):
    frames = tracked(video(12, size), size)
    for t, frame in enumerate(frames):
        assert frame.ids.tolist() == [1, 2]
        assert frame.slots.tolist() == [0, 1]
        assert frame.positions[1] == pytest.approx([29.5, 19.5 + 4 * t], abs=1.5 if size[1] == 128 else 3)
        late = 10 + 4 * max(t - 1, 0)  # masks are those foreseen a frame before; this network foresees no motion
        assert frame.boxes[1] == pytest.approx([late, 20, 20, 20], abs=4 if size[1] == 128 else 7)
        assert frame.masks.shape == (2, *size)
        inside = frame.masks[1][20:40, late : late + 20]
        assert inside.mean() > 0.75
        assert frame.masks[1].sum() < 700
        assert not (frame.masks[0] & frame.masks[1]).any()
        assert frame.order.tolist() == [1, 0]  # the later slot has the higher priority
        assert frame.pictures.shape == (2, *SIZE, 4)
    assert frames[5].gestalts[0, 0] == frames[4].gestalts[0, 0] + 1


class Faint(Finder):
    """Its masks win their pixels but do not reach a half from the tenth step on: it remembers more than it sees."""

    def step(self, frame, state, **options):
        state, out = super().step(frame, state, **options)
        if state.code.gestalt[0, 0, 0] > 10:
            masks = torch.cat((state.masks[:, :-1] * 0.45, state.masks[:, -1:]), 1)
            masks[:, -1][masks[:, -1] == 0] = 0.3
            state = state._replace(masks=masks)
        return state, out


def test_a_mask_under_a_half_is_an_object_out_of_sight():
    fit, scene = Fit.of((96, 128), SIZE), Scene(np.zeros((*SIZE, 3), np.uint8), None)
    frames = list(follow(Faint(), video(16), fit, scene))
    assert frames[6].seen.all()
    assert frames[6].masks.any((1, 2)).all()
    assert frames[14].ids.tolist() == [1, 2]
    assert (frames[14].labels > 0).any()
    assert not frames[14].seen.any()
    assert not frames[14].masks.any()
    assert frames[14].boxes[:, 2:] == pytest.approx(frames[6].boxes[:, 2:], abs=8)


def test_an_object_has_an_id_from_when_it_was_found_and_keeps_it_while_hidden():
    frames = tracked(video(20, show=lambda k, t: k == 1 if t < 5 else not (k == 1 and 8 <= t < 12)))
    assert all(frame.ids.tolist() == [1] and frame.slots.tolist() == [1] for frame in frames[:6])
    assert frames[6].ids.tolist() == [1, 2]
    assert frames[6].slots.tolist() == [1, 0]
    hidden = frames[10]
    assert hidden.ids.tolist() == [1, 2]
    assert not hidden.seen[0]
    assert hidden.visible[0] == 0
    assert not hidden.masks[0].any()
    assert hidden.boxes[0, 2:] == pytest.approx(frames[8].boxes[0, 2:])
    assert frames[14].ids.tolist() == [1, 2]
    assert frames[14].seen.all()


def test_what_is_forgotten_comes_back_as_another():
    frames = tracked(video(20, show=lambda k, t: k == 1 and not 8 <= t < 14), forget=3)
    assert {frame.ids.tolist()[0] for frame in frames[:12]} == {1}
    assert frames[13].ids.tolist() == []
    assert frames[17].ids.tolist() == [2]


def test_never_more_than_the_slots_asked_for():
    frames = tracked(video(3), slots=1)
    assert all(frame.ids.tolist() == [1] and frame.slots.tolist() == [0] for frame in frames)


def test_time_is_accounted_for():
    clock = Clock()
    tracked(video(3), clock=clock)
    assert set(clock.spent) == {"decoding", "scaling", "model", "masks"}
    assert all(seconds > 0 for seconds in clock.spent.values())


@pytest.fixture
def clip(tmp_path):
    with video_out(tmp_path / "clip.mp4", 10, quality=5) as write:
        for frame in video(16):
            write(frame.pixels)
    return tmp_path / "clip.mp4"


def test_the_package_is_the_function(clip):
    frames = list(loci.track(clip, Finder()))
    assert [frame.index for frame in frames] == list(range(16))
    assert frames[-1].time == pytest.approx(1.5)
    assert frames[3].positions[1] == pytest.approx([29.5, 31.5], abs=2)
    assert loci.track.track is not loci.track


def test_a_background_is_taken_made_or_followed(clip, tmp_path):
    model = Finder()
    list(loci.track(clip, model))
    assert model.shown.shape == (3, *SIZE)
    assert model.shown.float().mean() < 12  # squares that move are not part of it
    list(loci.track(clip, model, background=np.full((96, 128, 3), 77, np.uint8)))
    assert (model.shown == 77).all()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        water = MovingBackground(BackgroundConfig(*SIZE, code=8, channels=12)).eval()
    list(loci.track(clip, model, background=water))
    assert model.shown.shape == (1, 3, *SIZE)
    with pytest.raises(UserError, match="learn it anew"):
        list(loci.track(clip, model, background=MovingBackground(BackgroundConfig(32, 32))))
    with pytest.raises(UserError, match="another shape"):
        list(loci.track(clip, model, background=np.zeros((96, 96, 3), np.uint8)))


def test_what_the_network_was_trained_with_is_used_where_it_shows_the_same(clip):
    fit, notes = Fit.of((96, 128), SIZE), []
    same, other = np.full((96, 128, 3), 5, np.uint8), np.full((96, 128, 3), 200, np.uint8)
    for known, expected in ((same, 5), (other, None), (None, None)):
        with open_video(clip) as opened:
            scene, frames = scene_of(opened, fit, None, known, notes.append)
            assert sum(1 for _ in frames) == 16
        assert bool((scene.picture == 5).all()) == (expected == 5)
    assert not notes


def test_live_video_gives_its_first_frames_for_the_background_and_loses_none(clip, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(clip.read_bytes())))
    notes = []
    frames = list(loci.track("-", Finder(), note=notes.append))
    assert [frame.index for frame in frames] == list(range(16))
    assert "first 16 frames" in notes[0]


@pytest.mark.parametrize("options", [{"ids": "names"}, {"slots": 0}, {"forget": -1.0}])
def test_options_that_make_no_sense(clip, options):
    with pytest.raises(UserError):
        list(loci.track(clip, Finder(), **options))


def test_memory_stays_flat_over_time():
    process, rss = psutil.Process(), {}
    frames = (Frame(t, t / 10, frame.pixels) for t, frame in enumerate(frame for _ in range(50) for frame in video(10)))
    for frame in follow(Finder(), frames, Fit.of((96, 128), SIZE), Scene(np.zeros((*SIZE, 3), np.uint8), None)):
        if frame.index in (100, 499):
            rss[frame.index] = process.memory_info().rss
    assert rss[499] - rss[100] < 6e6  # the frames alone are 15 MB


def test_the_mixture_leaves_out_what_stood_in_the_first_frame():
    still = np.tile(np.arange(0, 128, dtype=np.uint8)[None, :, None], (64, 1, 3))
    frames = []
    for t in range(60):
        frame = still.copy()
        frame[20:40, 2 * t : 2 * t + 12] = 250  # there from the first frame on
        frames.append(frame)
    assert np.abs(mixture(frames).astype(int) - still).max() <= 3


def test_a_centre_that_leaps_is_another_object():
    frames = [
        frame if frame.index < 6 else Frame(frame.index, frame.time, np.roll(frame.pixels, 40, 1))
        for frame in video(14, show=lambda k, t: k == 1)
    ]
    assert {known for frame in tracked(frames) for known in frame.ids.tolist()} == {1}
    leapt = tracked(frames, jump=0.2)
    assert [frame.ids.tolist() for frame in leapt] == [[1]] * 6 + [[2]] * 8
    assert [frame.slots.tolist() for frame in leapt] == [[1]] * 14
    # Hidden while it goes the same way, it may: 68 of 128 pixels in eight frames are not too far.
    hidden = [
        frame if not 3 <= frame.index < 10 else Frame(frame.index, frame.time, frame.pixels * 0) for frame in frames
    ]
    assert {known for frame in tracked(hidden, jump=0.2) for known in frame.ids.tolist()} == {1}


def test_a_slot_that_claims_without_being_seen_has_no_id_yet():
    class Eager(Finder):
        def start(self, batch, background, seed, slots):
            state = super().start(batch, background, seed, slots)
            return state._replace(claimed=torch.ones(1, 3))

    fit, scene = Fit.of((96, 128), SIZE), Scene(np.zeros((*SIZE, 3), np.uint8), None)
    frames = list(follow(Eager(), video(5, show=lambda k, t: k == 1), fit, scene))
    assert [frame.ids.tolist() for frame in frames] == [[1]] * 5


def test_labels_are_those_of_the_largest_share():
    rng = np.random.default_rng(0)
    for video_size, letterbox in (((96, 128), True), ((96, 200), True), ((50, 60), False), (SIZE, False)):
        fit = Fit(video_size, SIZE, letterbox)
        logits = torch.from_numpy(rng.normal(0, 3, (5, 6, 8)).astype(np.float32))[None]
        masks = torch.softmax(torch.nn.functional.interpolate(logits, SIZE, mode="bilinear")[0], 0)
        large = fit.enlarge(masks)
        expected = (large.argmax(0) + 1) % 5
        differs = torch.from_numpy(fit.labels(masks).astype(np.int64)) != expected
        two = large.topk(2, 0).values
        assert not (differs & (two[0] - two[1] > 1e-3)).any(), "only ties may go either way"
        assert len(np.unique(fit.labels(masks))) == 5


def test_trimmed_masks_are_of_what_is_there():
    def ghost(k, t):
        return k == 1 and t < 6

    plain, cut = tracked(video(10, show=ghost)), tracked(video(10, show=ghost), trim=True)
    assert plain[6].seen[0], "the mask was foreseen the frame before, when the square was there"
    assert not cut[6].seen[0]
    assert cut[6].visible[0] == 0
    assert plain[4].visible[0] == cut[4].visible[0] == 1
    assert (plain[4].masks == cut[4].masks).all(), "all of it is there"


def exchanging(length, at):
    """Two squares that move to the right, one above the other, and exchange their colours, and so their slots."""
    for t in range(length):
        pixels = np.zeros((96, 128, 3), np.uint8)
        for row, colour in ((16, 0), (64, 2)):
            pixels[row : row + 20, 10 + 3 * t : 30 + 3 * t, colour if t < at else 2 - colour] = 255
        yield Frame(t, t / 10, pixels)


def test_ids_by_motion_stay_with_what_moves_and_ids_by_slot_with_slots():
    for by_motion in (False, True):
        last = list(tracked(exchanging(26, at=12), by_motion=by_motion, rate=10))
        before, after = last[10], last[-1]
        above = [frame.ids[np.argmin(frame.positions[:, 0])] for frame in (before, after)]
        assert len(before.ids) == len(after.ids) == 2
        assert (above[0] == above[1]) == by_motion
        assert after.hues.tolist() == (after.ids - 1 if by_motion else after.slots).tolist()
        assert after.slots.tolist() != before.slots.tolist() or not by_motion


def test_ids_by_motion_wait_for_three_frames_and_hidden_objects_keep_them():
    frames = list(tracked(video(20, show=lambda k, t: k == 0 or t < 10), by_motion=True, rate=10, forget=30))
    assert [len(frame.ids) for frame in frames[:4]] == [0, 0, 2, 2]
    assert frames[-1].ids.tolist() == frames[5].ids.tolist()
    assert sorted(frames[-1].seen.tolist()) == [False, True]
