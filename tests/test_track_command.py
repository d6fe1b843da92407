import csv
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from loci import checkpoint, cli, presets
from loci.model import Loci
from loci.track.background import still_background, write_image
from loci.track.video_in import open_video
from loci.track.video_out import video_out

FILES = ["codes.npz", "masks.json", "mot.txt", "overlay.mp4", "report.html", "tracks.csv"]


def picture(t, size=(48, 64)):
    pixels = np.full((*size, 3), 60, np.uint8)
    pixels[10:24, 2 * t : 2 * t + 14] = (230, 60, 40)
    return pixels


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """An untrained network whose only slot claims what it sees, because the background hardly competes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Loci(replace(presets.smoke().model, slots=1))
    with torch.no_grad():
        model.compose.background_logit.fill_(-1.0)
    path = tmp_path_factory.mktemp("network") / "tiny.safetensors"
    checkpoint.save(path, model)
    return str(path)


@pytest.fixture
def clip(tmp_path):
    with video_out(tmp_path / "clip.mp4", 10) as write:
        for t in range(20):
            write(picture(t))
    return tmp_path / "clip.mp4"


def run(*words):
    return cli.main([str(word) for word in words])


def test_a_video_gives_every_file(clip, weights, tmp_path, capsys):
    assert run("track", clip, "--weights", weights, "--out", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    said = capsys.readouterr().out
    assert "20 frames" in said
    assert all(word in said for word in ("frames a second", "decoding", "model", "drawing"))
    with (tmp_path / "out" / "tracks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows, "the test's network claims objects, so there is something to write"
    assert {int(row["frame"]) for row in rows} <= set(range(20))
    assert json.loads((tmp_path / "out" / "masks.json").read_text())["videos"][0]["length"] == 20
    with open_video(tmp_path / "out" / "overlay.mp4") as overlay:
        assert sum(1 for _ in overlay) == 20
    assert next(path.name for path in (tmp_path / ".loci").iterdir()).startswith("background-clip.mp4")


def test_the_same_again_gives_the_same_bytes(clip, weights, tmp_path):
    for out in ("a", "b"):
        assert run("track", clip, "--weights", weights, "--out", tmp_path / out, "--no-report") == 0
    for name in ("tracks.csv", "mot.txt", "masks.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("name", ["overlay", "csv", "mot", "masks", "codes", "report"])
def test_every_file_can_be_left_out(clip, weights, tmp_path, name):
    others = [f"--no-{other}" for other in ("overlay", "csv", "mot", "masks", "codes", "report") if other != name]
    assert run("track", clip, "--weights", weights, "--out", tmp_path / "out", *others) == 0
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_folder_of_images_and_a_gif(weights, tmp_path):
    import av

    (tmp_path / "frames").mkdir()
    for t in range(4):
        write_image(tmp_path / "frames" / f"{t}.png", picture(t))
    with av.open(str(tmp_path / "clip.gif"), "w") as container:
        stream = container.add_stream("gif", rate=10)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "rgb8"
        for t in range(4):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(t), format="rgb24").reformat(format="rgb8")))
        container.mux(stream.encode())
    for name in ("frames", "clip.gif"):
        assert run("track", tmp_path / name, "--weights", weights, "--out", tmp_path / "out", "--no-overlay") == 0
        assert json.loads((tmp_path / "out" / "masks.json").read_text())["videos"][0]["length"] == 4


def test_a_cut_video_is_tracked_with_a_warning(weights, tmp_path, capsys):
    import av

    grain = np.random.default_rng(0)
    with av.open(str(tmp_path / "whole.avi"), "w") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuvj420p"
        for t in range(20):
            pixels = picture(t) + grain.integers(0, 20, (48, 64, 3), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    whole = (tmp_path / "whole.avi").read_bytes()
    (tmp_path / "cut.avi").write_bytes(whole[: len(whole) // 2])
    assert run("track", tmp_path / "cut.avi", "--weights", weights, "--out", tmp_path / "out") == 0
    told = capsys.readouterr()
    frames = int(told.out.split(" frames")[0].split()[-1])
    assert 4 < frames < 16
    assert f"warning: {tmp_path}/cut.avi: ended at frame {frames} of 20" in told.err
    assert "ended at frame" in (tmp_path / "out" / "report.html").read_text()


def test_mistakes_end_with_code_2_and_a_reason(clip, weights, tmp_path, capsys):
    text = tmp_path / "text.mp4"
    text.write_text("no video " * 100)
    out = tmp_path / "out"
    for words, reason in (
        ((text, "--weights", weights), "not a video"),
        ((tmp_path / "none.mp4", "--weights", weights), "no file or folder"),
        ((clip, "--weights", "no_such_network"), "no_such_network"),
        ((clip, "--weights", text), "damaged"),
        ((clip, "--weights", weights, "--raw", "12"), "HEIGHTxWIDTH"),
        ((clip, "--weights", weights, "--slots", 0), "slots"),
        ((clip, "--weights", weights, "--background", tmp_path / "none.png"), "no such file"),
        ((clip, "--weights", weights, "--background", weights), "no moving background"),
    ):
        start = time.perf_counter()
        assert run("track", *words, "--out", out) == 2
        assert reason in capsys.readouterr().err
        assert time.perf_counter() - start < 5
        assert not out.exists() or not list(out.iterdir())
    text.touch()
    assert run("track", clip, "--weights", weights, "--out", text) == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_raw_stream_in_another_process(weights, tmp_path):
    frames = b"".join(picture(t).tobytes() for t in range(5))
    words = [
        "track",
        "-",
        "--raw",
        "48x64",
        "--weights",
        weights,
        "--out",
        str(tmp_path),
        "--no-overlay",
        "--no-report",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "loci", *words], input=frames, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"5 frames" in done.stdout
    assert b"background comes from its first 5 frames" in done.stderr


def test_imagine_writes_what_came_beside_what_it_imagines(clip, weights, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("imagine", clip, "--weights", weights, "--from", 15, "--frames", 8, "--out", out) == 0
    said = capsys.readouterr().out
    assert "imagined 8; 5 of them came" in said
    with open_video(out / "imagined.mp4") as video:
        frames = list(video)
    assert len(frames) == 15 + 8
    with (out / "imagined.csv").open() as file:
        numbers = {int(row["frame"]) for row in csv.DictReader(file)}
    assert numbers == set(range(15, 23))
    width = frames[0].pixels.shape[1] // 2 - 4
    assert np.abs(frames[3].pixels[:, :width].astype(int) - frames[3].pixels[:, -width:]).mean() < 8  # both as seen
    assert run("imagine", clip, "--weights", weights, "--from", 21, "--out", out) == 2
    assert "beyond" in capsys.readouterr().err


def test_imagined_frames_have_their_background_though_the_network_had_none_yet(weights, tmp_path):
    """The tiny network is in its foreground phase: what it predicts is on black, all of which is background here."""
    model = checkpoint.load(weights)
    with torch.no_grad():
        model.compose.background_logit.fill_(9.0)
    weights = tmp_path / "nothing.safetensors"
    checkpoint.save(weights, model)
    with video_out(tmp_path / "bright.mp4", 10) as write:
        for _ in range(8):
            write(np.full((48, 64, 3), 180, np.uint8))
    out = tmp_path / "out"
    assert run("imagine", tmp_path / "bright.mp4", "--weights", weights, "--from", 4, "--frames", 4, "--out", out) == 0
    with open_video(out / "imagined.mp4") as video:
        last = list(video)[-1].pixels
    right = last[:, last.shape[1] // 2 + 8 :]
    assert np.median(right) > 150


def test_background_saves_a_picture_and_a_network(clip, weights, tmp_path, capsys):
    assert run("background", clip, "--out", tmp_path / "still") == 0  # the ending may be left out
    assert run("background", clip, "--method", "autoencoder", "--weights", weights, "--steps", 3,
               "--out", tmp_path / "moving.safetensors") == 0  # fmt: skip
    assert "moving" in capsys.readouterr().out
    assert (tmp_path / "moving.png").is_file()
    for background in ("still.png", "moving.safetensors"):
        words = ("--background", tmp_path / background, "--no-overlay", "--no-masks")
        assert run("track", clip, "--weights", weights, "--out", tmp_path / "out", *words) == 0
    assert run("background", clip, "--method", "autoencoder", "--out", tmp_path / "x.safetensors") == 2
    assert run("background", clip, "--out", tmp_path / "x.safetensors") == 2


def test_what_left_is_let_go_in_footage_and_nowhere_else(clip, weights, tmp_path, capsys):
    config = presets.video()
    checkpoint.save(tmp_path / "street.safetensors", checkpoint.load(weights), run=config)
    for network, option, said in (
        (weights, (), "never"),
        (tmp_path / "street.safetensors", (), "after 2 s out of sight"),
        (tmp_path / "street.safetensors", ("--forget", "inf"), "never"),
        (weights, ("--forget", "0.5"), "after 0.5 s out of sight"),
    ):
        words = ("track", clip, "--weights", network, "--out", tmp_path / "out", "--no-overlay", "--no-masks")
        assert run(*words, *option) == 0
        assert f"<tr><th>forget</th><td>{said}</td></tr>" in (tmp_path / "out" / "report.html").read_text()
    assert run(*words, "--forget", "-1") == 2
    assert "0 or more" in capsys.readouterr().err


def test_the_background_is_kept_beside_the_video_until_that_changes(clip, tmp_path, monkeypatch):
    from loci.track import background

    first = still_background(clip)
    monkeypatch.setattr(background, "mixture", lambda frames: pytest.fail("it should have been read"))
    assert (still_background(clip) == first).all()
    monkeypatch.undo()
    os.utime(clip, (1, 1))
    still_background(clip)
    assert len(list((tmp_path / ".loci").iterdir())) == 2


def test_where_the_folder_cannot_be_written_the_cache_is_the_users(clip, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "sealed"
    folder.mkdir()
    shutil.copy(clip, folder / "clip.mp4")
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    still_background(folder / "clip.mp4")
    folder.chmod(stat.S_IRWXU)
    assert [path.name for path in folder.iterdir()] == ["clip.mp4"]  # not even by root, who could
    assert len(list((tmp_path / "cache" / "loci").iterdir())) == 1


def test_a_mistake_is_answered_without_loading_torch_and_the_public_names_are_there():
    said = subprocess.run(
        [sys.executable, "-c", PUBLIC], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == ["2", "2", "2", "2", "False", "True", "True", "True"]


PUBLIC = """
import sys
import loci
from loci import cli
for words in ("track V --weights cater --out /tmp/never", "imagine V --weights cater --out /tmp/never", "background V",
              "train video --out /tmp/never --data.path V"):
    print(cli.main(words.replace("V", "/nowhere.mp4").split()))
print("torch" in sys.modules)
print(callable(loci.track), callable(loci.train))
print(all(getattr(loci, name) for name in loci.__all__))
"""
