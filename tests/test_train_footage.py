"""From somebody's own video to a network: what is chosen, on what it learns, and that tracking then sees the same."""

import logging
import subprocess
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

from loci import checkpoint, cli, presets
from loci.config import Config, DataConfig
from loci.data.video import negatives, open_images, open_videos
from loci.errors import UserError
from loci.model import Loci
from loci.track import open_tracking
from loci.track.background import read_image, trained_on, write_image
from loci.track.fit import Fit
from loci.track.video_out import video_out
from loci.train.feed import open_data
from loci.train.footage import fit
from loci.train.scene import named_scene
from loci.worlds.moving_mnist import MovingMnist

LENGTH = 90


def frame(t, paint, ground, squares=2, side=24):
    pixels = np.full((120, 160, 3), ground, np.uint8)
    for n in range(squares):
        column = (40 * n + 2 * t) % (160 - side)
        pixels[10 + 45 * n : 10 + 45 * n + side, column : column + side] = paint
    return pixels


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Dark squares on a bright ground, bright ones on a dark ground, and pictures where everything moves."""
    folder = tmp_path_factory.mktemp("films")
    noise = np.random.default_rng(0)
    for name in ("dark", "bright", "storm"):
        with video_out(folder / f"{name}.mp4", 20, quality=10) as write:
            for t in range(LENGTH):
                if name == "storm":
                    write(noise.integers(0, 256, (12, 16, 3)).astype(np.uint8).repeat(10, 0).repeat(10, 1))
                else:
                    write(frame(t, (20, 30, 40), 200) if name == "dark" else frame(t, (250, 230, 20), 60))
    return folder


def config(path, **data):
    start = presets.video()
    return replace(start, data=replace(start.data, path=str(path), **data))


def options(found: Config):
    return dict(option.split("=") for option in found.data.options)


def test_size_slots_and_clips_come_from_the_footage(films, caplog):
    caplog.set_level(logging.INFO)
    found = fit(config(films / "bright.mp4"), size=True, slots=True)
    assert found.model.size == (48, 64), "squares of 24 pixels of 160 are 10 of 64 across"
    assert 4 <= found.model.slots <= 6
    assert found.data.background is None
    assert options(found) == {"stride": "1", "every": "8", "hold": "true"}
    assert "only about 90 frames" in caplog.text
    assert "blobs: " in caplog.text


def test_what_was_asked_for_by_name_stays(films):
    asked = config(films / "dark.mp4", options=("every=7", "negative=false"))
    found = fit(asked, size=False, slots=False)
    assert found.model == asked.model
    assert options(found) == {"every": "7", "negative": "false", "stride": "1", "hold": "true"}
    assert not negatives(found.data)


def test_dark_objects_are_learned_from_negatives(films):
    found = fit(config(films / "dark.mp4"), size=True, slots=True)
    assert negatives(found.data)
    source = open_data(found, "train", found.model.size)
    shown = source.clips([0]).frames[0, 0]
    assert shown.shape == (3, *found.model.size)
    assert float(shown.float().median()) == pytest.approx(55, abs=3), "the bright ground of 200 is dark now"
    assert int(shown.max()) > 210, "the squares are bright"


def test_where_everything_moves_the_background_is_learned(films):
    found = fit(config(films / "storm.mp4"), size=True, slots=True)
    assert found.data.background == "learned"
    assert fit(config(films / "storm.mp4", background="x.png"), size=True, slots=True).data.background == "x.png"


def test_clips_may_overlap_skip_frames_and_be_held(films, tmp_path):
    path = films / "bright.mp4"
    plain = open_videos(path, size=(60, 80), length=30)
    assert [window.start for window in plain.windows] == [0, 30, 60]
    held = open_videos(path, size=(60, 80), length=20, every=10, stride=3, hold=True)
    assert [window.start for window in held.windows] == [0, 10, 20, 30]
    whole = torch.cat([plain.clips([n]).frames[0] for n in range(3)])
    for n in range(4):
        assert torch.equal(held.clips([n]).frames[0], whole[10 * n : 10 * n + 58 : 3])
    assert torch.equal(held.clips([3, 0]).frames[1], whole[0:58:3]), "clips of a batch are read by several threads"
    again = open_videos(path, size=(60, 80), length=20, every=10, stride=3)
    assert torch.equal(again.clips([2]).frames, held.clips([2]).frames)
    turned = open_videos(path, size=(60, 80), length=30, negative=True)
    assert torch.equal(turned.clips([1]).frames[0], 255 - whole[30:60])
    for t, pixels in enumerate(whole[:12].permute(0, 2, 3, 1).numpy()):
        write_image(tmp_path / f"{t}.png", pixels)
    images = open_images(tmp_path, length=4, every=2, stride=2, hold=True)
    assert torch.equal(images.clips([1]).frames[0], whole[2:9:2])
    for wrong in ({"stride": 0}, {"every": 0}):
        with pytest.raises(UserError, match="must be 1 or more"):
            open_videos(path, **wrong)


def test_a_held_video_is_read_as_far_as_it_goes(films, tmp_path):
    whole = (films / "bright.mp4").read_bytes()
    at = whole.index(b"mdat")
    broken = bytearray(whole)
    broken[at + 4 + (len(whole) - at) // 3 : at + 4 + (len(whole) - at) // 2] = b"\xff" * (
        (len(whole) - at) // 2 - (len(whole) - at) // 3
    )
    (tmp_path / "broken.mp4").write_bytes(broken)
    source = open_videos(tmp_path / "broken.mp4", length=10, hold=True)
    assert source.clips([0]).frames.shape == (1, 10, 3, 120, 160)


def test_a_network_of_negatives_is_shown_negatives_and_answers_in_true_colours(films, tmp_path):
    tiny = presets.smoke()
    data = DataConfig("video", path=str(films / "dark.mp4"), length=8, batch=1, options=("negative=true",))
    run = replace(tiny, data=data)
    torch.manual_seed(0)
    model = Loci(replace(tiny.model, slots=1)).eval()
    with torch.no_grad():
        model.compose.background_logit.fill_(-1.0)
    checkpoint.save(tmp_path / "turned.safetensors", model, run=replace(run, model=model.config))
    with open_tracking(films / "dark.mp4", tmp_path / "turned.safetensors") as tracking:
        assert tracking.fit.negative
        true = next(iter(tracking.frames))
        assert np.median(tracking.scene.picture) == pytest.approx(55, abs=3)
        assert true.pixels.mean() > 150
        assert np.median(tracking.fit.turned(tracking.scene.picture)) == pytest.approx(200, abs=3)
    named = replace(run, data=replace(data, background=str(_ground(tmp_path))))
    scene = named_scene(named, Shape(), None, model.device)
    assert scene is not None
    assert int(scene.shown.max()) == 55
    write_image(tmp_path / "background.png", np.full((30, 40, 3), 55, np.uint8))
    assert int(trained_on(tmp_path / "turned.safetensors").max()) == 200
    with open_tracking(films / "dark.mp4", model) as tracking:
        assert not tracking.fit.negative, "a network in memory knows nothing of how it was trained"


class Shape:
    size = (32, 32)


def _ground(folder):
    write_image(folder / "ground.png", np.full((30, 40, 3), 200, np.uint8))
    assert int(read_image(folder / "ground.png").max()) == 200
    return folder / "ground.png"


def test_pictures_of_a_negative_come_back():
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    turned = Fit((4, 4), (4, 8), True, True)
    assert (turned.turned(turned.shrink(pixels))[:, 2:6] == pixels).all()
    assert (Fit((4, 4), (4, 4)).shrink(pixels) == pixels).all()


def test_three_commands_from_a_video_to_tracks(films, tmp_path, capsys):
    small = ("--model.gestalt", 8, "--model.bootstrap", 1, "--model.encoder.channels", 12,
             "--model.encoder.fine-channels", 12, "--model.encoder.layers", 1, "--model.transition.heads", 1,
             "--model.transition.layers", 1, "--model.decoder.channels", 12, "--model.decoder.layers", 1)  # fmt: skip
    film, run = films / "dark.mp4", tmp_path / "run"
    for words in (
        ("background", film, "--out", tmp_path / "scene.png"),
        ("train", "video", "--data.path", film, "--out", run, "--data.batch", 2, "--data.length", 6,
         "--train.updates", 12, "--train.evaluate-every", 0, "--train.picture-every", 0, *small),
        ("track", film, "--weights", run, "--out", tmp_path / "tracks"),
    ):  # fmt: skip
        assert cli.main([str(word) for word in words]) == 0, capsys.readouterr().err
    assert (tmp_path / "tracks" / "report.html").is_file()
    assert int(np.median(read_image(run / "background.png"))) == pytest.approx(55, abs=3)


def test_images_need_no_video_library(tmp_path):
    """A rented GPU machine may have no PyAV: images go without, videos say so."""
    folder, video = tmp_path / "images", tmp_path / "a.mp4"
    folder.mkdir()
    video.write_bytes(b"")
    frames = MovingMnist(size=(64, 64), length=12).clips([0], labels=False).frames[0]
    for number, frame in enumerate(frames):
        cv2.imwrite(str(folder / f"{number:03}.png"), frame.permute(1, 2, 0).contiguous().numpy())
    script = """
import sys
sys.modules["av"] = None
from pathlib import Path
from loci.data.open import open_source
from loci.errors import UserError
from loci.track.footage import look
print(look(Path(sys.argv[1])).frames, len(open_source(f"images:{sys.argv[1]}", length=4)))
try:
    open_source(f"video:{sys.argv[2]}")
except UserError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(video)], capture_output=True, text=True, check=True
    )
    counts, error = done.stdout.splitlines()
    assert counts == "12 3"
    assert "videos are read by av, which is not installed: pip install av" in error
