import numpy as np
import pytest
import torch

from loci.errors import UserError
from loci.model.background import BackgroundConfig, MovingBackground
from loci.track import learn_background
from loci.track.background import limited, mixture, read_image, same_scene, sample, write_image
from loci.track.video_out import video_out
from loci.train.background import pretrain

H, W = 32, 48


def water(length=120):
    """Light that comes and goes, a wave that travels, and a fish: frames, the water alone, and where the fish is."""
    r, c = np.mgrid[:H, :W]
    still = np.stack([40 + r, 70 + r, 120 - r], -1).astype(float)
    alone, frames, fish = [], [], []
    for t in range(length):
        light = 25 * np.sin(2 * np.pi * t / 31) * (r < 20)
        wave = 30 * np.sin(2 * np.pi * (c / 24 - t / 17)) * (r > 8)
        scene = still + (light + wave)[..., None]
        inside = ((r - 16 - 8 * np.sin(t / 9)) / 3) ** 2 + ((c - (3 * t) % (W + 20) + 10) / 5) ** 2 < 1
        alone.append(scene)
        frames.append(np.where(inside[..., None], (250, 120, 20), scene))
        fish.append(inside)
    return np.array(frames).clip(0, 255).astype(np.uint8), np.array(alone).clip(0, 255), np.array(fish)


@pytest.fixture(scope="module")
def learned():
    frames, alone, fish = water()
    shown = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MovingBackground(BackgroundConfig(H, W, code=16, channels=24))
    model.begin_from(shown)
    pretrain(model, shown, steps=250, batch=6)
    state, said = model.start(1), []
    with torch.no_grad():
        for frame in shown:
            background, state = model.step(frame[None], state)
            said.append(background[0].permute(1, 2, 0).numpy() * 255)
    return model, shown, np.array(said), frames, alone, fish


def test_moving_water_is_followed_three_times_better_than_by_a_still_picture(learned):
    _, _, said, frames, alone, fish = learned
    still = mixture(list(frames)).astype(float)
    moving_error, still_error = (np.abs(each - alone)[~fish].mean() for each in (said, still))
    assert moving_error < still_error / 3


def test_objects_are_left_out_of_it(learned):
    _, _, said, frames, alone, fish = learned
    assert np.abs(said - alone)[fish].mean() < 0.25 * np.abs(frames - alone)[fish].mean()


def test_what_it_says_depends_on_its_arguments_alone(learned):
    model, shown, _said, *_ = learned
    with torch.no_grad():
        pair, state = model.step(shown[[5, 60]], model.start(2))
        alone, other = model.step(shown[60:61], model.start(1))
    assert torch.allclose(pair[1], alone[0], atol=1e-5)
    assert torch.allclose(state.hidden[1], other.hidden[0], atol=1e-5)
    assert other.hidden.abs().max() > 0


def test_a_file_brings_it_back(learned, tmp_path):
    model, shown, *_ = learned
    learn_background.save(tmp_path / "water.safetensors", model)
    again = learn_background.load(tmp_path / "water.safetensors")
    with torch.no_grad():
        assert torch.equal(again.step(shown[:1], again.start())[0], model.eval().step(shown[:1], model.start())[0])
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "water.safetensors").read_bytes()[:500])
    with pytest.raises(UserError, match=r"cut\.safetensors"):
        learn_background.load(tmp_path / "cut.safetensors")


def test_at_fine_sizes_it_goes_down_by_four_twice():
    model = MovingBackground(BackgroundConfig(128, 160, code=8, channels=12))
    background, _ = model.step(torch.zeros(1, 3, 128, 160), model.start())
    assert background.shape == (1, 3, 128, 160)
    assert model.config.twice
    for size in ((30, 48), (8, 48)):
        with pytest.raises(UserError, match="divisible by 4"):
            BackgroundConfig(*size)


def test_a_sample_is_spread_over_the_video(tmp_path):
    with video_out(tmp_path / "clip.mp4", 25, quality=10) as write:
        for t in range(200):
            write(np.full((32, 32, 3), t, np.uint8))
    means = [frame.mean() for frame in sample(tmp_path / "clip.mp4", 20)]
    assert len(means) == 20
    assert np.diff(means) == pytest.approx(np.full(19, 10), abs=2)


def test_a_long_video_is_sampled_by_jumping(tmp_path, monkeypatch):
    from loci.track import background

    with video_out(tmp_path / "clip.mp4", 25, quality=10) as write:
        for t in range(600):
            write(np.full((32, 32, 3), t // 3, np.uint8))
    monkeypatch.setattr(background, "_READ_THROUGH", 100)
    monkeypatch.setattr(background, "_thinned", lambda *_: pytest.fail("it was read through"))
    frames = background.sample(tmp_path / "clip.mp4", 12)
    assert len(frames) == 12
    assert frames[-1].mean() > frames[0].mean() + 50


def test_large_frames_are_made_smaller_and_small_ones_are_not():
    assert limited(np.zeros((1080, 1920, 3), np.uint8)).shape == (543, 965, 3)
    assert limited(np.zeros((480, 640, 3), np.uint8)).shape == (480, 640, 3)


def test_images_come_back_as_they_were(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    write_image(tmp_path / "a.png", pixels)
    assert (read_image(tmp_path / "a.png") == pixels).all()


def test_two_scenes_are_told_apart():
    one = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    assert same_scene(one, np.clip(one.astype(int) + 5, 0, 255).astype(np.uint8))
    assert not same_scene(one, np.roll(one, 7, 1))
