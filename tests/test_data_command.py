"""`loci data` as a user types it: what it writes is read back by other means and compared with the world."""

import json
import signal
import subprocess
import sys
import time
import warnings

import av
import cv2
import numpy as np
import pytest
import torch
from pycocotools import mask as coco

from loci.cli import main
from loci.data.clip import STATES
from loci.data.write_cater import CaterFolder
from loci.data.write_clevrer import ClevrerFolder
from loci.data.write_video import write_video
from loci.worlds.aquarium import Aquarium
from loci.worlds.cater import Cater
from loci.worlds.clevrer import Clevrer
from loci.worlds.moving_mnist import MovingMnist


def run(*words):
    return main(["data", *map(str, words)])


def frames_of(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)])
        return torch.from_numpy(pictures).permute(0, 3, 1, 2), stream.codec_context.name, float(stream.average_rate)


def decoded(code):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pycocotools under numpy 2
        return torch.from_numpy(coco.decode(code)).bool()


def files_in(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def masks_of(path, clip):
    """The masks in a labels file equal the clip's, and so do its words."""
    content = json.loads(path.read_text())
    (video,) = content["videos"]
    assert (video["length"], video["height"], video["width"]) == (clip.length, *clip.frames.shape[-2:])
    for annotation in content["annotations"]:
        n = annotation["id"] - 1
        for key, masks in (("segmentations", clip.visible), ("whole", clip.whole)):
            for t, code in enumerate(annotation[key]):
                found = decoded(code) if code else torch.zeros_like(masks[0, t, n])
                assert torch.equal(found, masks[0, t, n])
        assert annotation["states"] == [STATES[s] for s in clip.state[0, :, n]]
        assert np.allclose(annotation["positions"], clip.position[0, :, n], atol=1e-5)
        t = next(t for t, code in enumerate(annotation["segmentations"]) if code)
        left, top, width, height = annotation["bboxes"][t]
        rows, columns = clip.visible[0, t, n].nonzero().T
        assert (left, top) == (columns.min(), rows.min())
        assert (width, height) == (columns.max() - columns.min() + 1, rows.max() - rows.min() + 1)
    return content


@pytest.fixture(scope="module")
def cater_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "cater"
    assert run("make", "cater", "--count", 3, "--seed", 4, "--size", 48, 64, "--length", 12, "--out", folder) == 0
    return folder


def test_moving_mnist_is_an_array_pictures_and_masks(tmp_path, capsys):
    out = tmp_path / "mnist"
    words = ("make", "moving_mnist", "--seed", 2, "--length", 6, "--option", "digits=3", "--out", out)
    assert run(*words, "--count", 3) == 0
    assert "3 clips of moving_mnist, 3 of them new" in capsys.readouterr().out
    source = MovingMnist(split="test", seed=2, length=6, digits=3)
    clips = source.clips(range(5))
    before = files_in(out)
    assert run(*words, "--count", 5) == 0
    assert "2 of them new" in capsys.readouterr().out
    array = np.load(out / "mnist_test_seq.npy", allow_pickle=False)
    assert array.shape == (6, 5, 64, 64)
    assert np.array_equal(array, clips.frames[:, :, 0].transpose(0, 1))
    after = files_in(out)
    assert all(after[name] == content for name, content in before.items() if name != "mnist_test_seq.npy")
    assert run(*words, "--count", 2) == 0  # asking for fewer takes nothing away
    assert files_in(out) == after
    for n in range(5):
        for t in range(6):
            picture = cv2.imread(str(out / f"png/{n:05d}/{t:03d}.png"), cv2.IMREAD_UNCHANGED)
            assert np.array_equal(picture, clips.frames[n, t, 0])
        content = masks_of(out / f"labels/{n:05d}.json", clips[n : n + 1])
        assert len(content["annotations"]) == 3
        assert content["categories"][3] == {"id": 4, "name": "3"}
        assert content["annotations"][0]["category_id"] == clips.attributes["class"][n, 0] + 1


def test_a_killed_run_goes_on_to_the_same_folder(tmp_path):
    out, other = tmp_path / "killed", tmp_path / "whole"
    words = ["make", "moving_mnist", "--count", "120", "--length", "8", "--out"]
    process = subprocess.Popen([sys.executable, "-m", "loci", "data", *words, str(out)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(list(out.glob("labels/*.json"))) < 7:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    there = sorted(out.glob("labels/[0-9]*.json"))
    assert 7 <= len(there) < 120
    for path in there:
        assert len(json.loads(path.read_text())["annotations"]) == 2
    (out / "png" / ".00100.png.part").touch()
    assert run(*words, out) == 0
    (out / "png" / ".00100.png.part").unlink()
    assert run(*words, other) == 0
    one, two = files_in(out), files_in(other)
    assert one.keys() == two.keys()
    assert one == two


def test_ctrl_c_keeps_what_is_finished(tmp_path, monkeypatch, capsys):
    out = tmp_path / "stopped"
    whole = MovingMnist.clips
    calls = []

    def stop(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *arguments, **options)

    monkeypatch.setattr(MovingMnist, "clips", stop)
    monkeypatch.setattr("loci.data.write._PIXELS_AT_ONCE", 3 * 4 * 64 * 64)
    words = ("make", "moving_mnist", "--count", 8, "--length", 4, "--out", out)
    assert run(*words) == 130
    assert "3 of 8 clips are written; the same command goes on" in capsys.readouterr().err
    assert run(*words) == 0
    assert "5 of them new" in capsys.readouterr().out


def test_folders_are_not_mixed(tmp_path, capsys):
    out = tmp_path / "one"
    words = ("make", "moving_mnist", "--count", 1, "--out", out)
    assert run(*words, "--length", 3) == 0
    before = files_in(out)
    assert run(*words, "--length", 4, "--seed", 9) == 2
    said = capsys.readouterr().err
    assert "length: there 3, asked for 4" in said
    assert "seed: there 0, asked for 9" in said
    assert "size" not in said
    assert files_in(out) == before
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "holiday.txt").write_text("sun")
    assert run("make", "moving_mnist", "--count", 1, "--out", foreign) == 2
    assert "was not made here" in capsys.readouterr().err
    assert files_in(foreign) == {"holiday.txt": b"sun"}
    assert run("make", "moving_mnist", "--count", 1, "--out", foreign / "holiday.txt") == 2
    assert "is a file" in capsys.readouterr().err
    assert run("make", "moving_mnist", "--count", 1, "--out", foreign / "holiday.txt" / "deeper") == 2
    assert "cannot be made" in capsys.readouterr().err
    for broken, said in (("{", "is no JSON"), ("[1]", "no settings but list")):
        (out / "settings.json").write_text(broken)
        assert run(*words, "--length", 3) == 2
        assert said in capsys.readouterr().err


def test_cater_is_in_its_own_layout(cater_folder):
    for n, split, index in ((0, "train", 0), (1, "train", 1), (2, "test", 0)):
        source = Cater(split=split, seed=4, size=(48, 64), length=12)
        clip = source.clips([index])
        name = f"CATER_new_{n:06d}"
        frames, codec, rate = frames_of(cater_folder / "videos" / f"{name}.avi")
        assert (codec, rate) == ("mjpeg", 24)
        assert frames.shape == clip.frames[0].shape
        assert (frames.int() - clip.frames[0].int()).abs().float().mean() < 3.5
        scene = json.loads((cater_folder / "scenes" / f"{name}.json").read_text())
        assert scene["image_filename"] == f"{name}.avi"
        assert scene["image_index"] == n
        snitch = next(thing for thing in scene["objects"] if thing["shape"] == "spl")
        assert snitch["instance"] == "Spl_0"
        assert set(snitch["locations"]) == set(map(str, range(12)))
        assert {"movements", "directions", "relationships", "split"} <= scene.keys()
        x, y, _ = snitch["locations"]["11"]
        cell = int(np.floor(y) + 3) * 6 + int(np.floor(x) + 3)
        listed = "val" if split == "test" else "train"
        assert f"{name}.avi {cell}" in (cater_folder / f"lists/localize/{listed}.txt").read_text().splitlines()
        masks_of(cater_folder / "labels" / f"{name}.json", clip)
    lists = {path.stem: path.read_text().splitlines() for path in (cater_folder / "lists/localize").iterdir()}
    assert {name: len(lines) for name, lines in lists.items()} == {
        "train": 2, "val": 1, "train_subsetT": 2, "train_subsetV": 0,
    }  # fmt: skip
    before = files_in(cater_folder)
    again = ("--count", 1, "--seed", 4, "--size", 48, 64, "--length", 12, "--out", cater_folder)
    assert run("make", "cater", *again) == 0  # asking for fewer takes nothing off the lists
    assert files_in(cater_folder) == before


def test_cater_and_clevrer_divide_as_the_real_ones(tmp_path):
    for layout, shares in ((CaterFolder(tmp_path), {"train": 0.56, "val": 0.14, "test": 0.3}),
                           (ClevrerFolder(tmp_path), {"train": 0.5, "val": 0.25, "test": 0.25})):  # fmt: skip
        places = [layout.place(n) for n in range(1000)]
        assert len(set(places)) == 1000
        for split, share in shares.items():
            indices = [index for which, index in places if which == split]
            assert indices == list(range(len(indices)))
            assert len(indices) == pytest.approx(1000 * share, abs=4)


def test_clevrer_is_in_its_own_layout(tmp_path, capsys):
    out = tmp_path / "clevrer"
    assert run("make", "clevrer", "--count", 2, "--size", 48, 72, "--length", 9, "--out", out) == 0
    for split, number in (("train", 0), ("val", 10_000)):
        source = Clevrer(split=split, size=(48, 72), length=9)
        clip = source.clips([0])
        folder = f"{number:05d}-{number + 1000:05d}"
        frames, codec, rate = frames_of(out / f"video_{folder}" / f"video_{number:05d}.mp4")
        assert (codec, rate) == ("h264", 25)
        assert (frames.int() - clip.frames[0].int()).abs().float().mean() < 3
        annotation = json.loads((out / f"annotation_{folder}" / f"annotation_{number:05d}.json").read_text())
        (expected,) = source.annotations([0])
        assert annotation == {"scene_index": number, "video_filename": f"video_{number:05d}.mp4", **expected}
        proposals = json.loads((out / "derender_proposals" / f"proposal_{number:05d}.json").read_text())
        assert [frame["frame_index"] for frame in proposals["frames"]] == list(range(9))
        for t, frame in enumerate(proposals["frames"]):
            seen = [n for n in range(6) if clip.visible[0, t, n].any()]
            assert len(frame["objects"]) == len(seen)
            for thing, n in zip(frame["objects"], seen, strict=True):
                assert torch.equal(decoded(thing["mask"]), clip.visible[0, t, n])
                assert thing["color"] == source.names["colour"][clip.attributes["colour"][0, n]]
    assert run("make", "clevrer", "--count", 5001, "--split", "val", "--size", 48, 72, "--length", 9, "--out", out) == 2
    assert "room for 5000" in capsys.readouterr().err


def test_other_worlds_are_videos_with_run_lengths(tmp_path):
    words = ("make", "aquarium", "--count", 2, "--size", 48, 65, "--length", 4, "--seed", 3, "--out", tmp_path / "tank")
    assert run(*words, "--option", "fish=5", "noise=1") == 0
    clips = Aquarium(seed=3, size=(48, 65), length=4, fish=5, noise=1.0).clips([0, 1])
    for n in range(2):
        frames, codec, rate = frames_of(tmp_path / "tank" / f"videos/{n:05d}.mp4")
        assert (codec, rate) == ("h264", 25)
        assert frames.shape == clips.frames[n].shape  # also of odd width
        assert (frames.int() - clips.frames[n].int()).abs().float().mean() < 4
        content = masks_of(tmp_path / "tank" / f"labels/{n:05d}.json", clips[n : n + 1])
        assert content["videos"][0]["file_names"][3] == f"videos/{n:05d}.mp4#3"
        species = [thing["attributes"]["class"] for thing in content["annotations"]]
        assert [content["categories"][a["category_id"] - 1]["name"] for a in content["annotations"]] == species


def test_a_video_is_the_same_file_every_time(tmp_path):
    """Six clips by turns, so that each finds the memory of the others."""
    clips = Aquarium(size=(48, 64), length=10).clips(range(6), labels=False)
    seen = {n: set() for n in range(6)}
    for _ in range(20):
        for n, files in seen.items():
            write_video(tmp_path / "one.mp4", clips.frames[n], 25)
            files.add((tmp_path / "one.mp4").read_bytes())
    assert [len(files) for files in seen.values()] == [1] * 6


def test_show_needs_no_more_than_a_world(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("show", "cater", "--seed", 3, "--size", 24, 32, "--length", 2, "--count", 1) == 0
    assert capsys.readouterr().out.split() == ["shown/cater.png", "shown/cater.mp4"]
    frames, _, _ = frames_of(tmp_path / "shown/cater.mp4")
    assert frames.shape == (2, 3, 240, 320)


def test_show_draws_labels(tmp_path, capsys):
    assert run("show", "moving_mnist", "--count", 3, "--length", 8, "--seed", 1, "--out", tmp_path) == 0
    assert "moving_mnist.png" in capsys.readouterr().out
    sheet = torch.from_numpy(cv2.imread(str(tmp_path / "moving_mnist.png"))[..., ::-1].copy()).int()
    assert sheet.shape == (3 * 320, 6 * 320, 3)
    clip = MovingMnist(seed=1, length=8).clips(range(3))
    plain = clip.frames[0, 0].permute(1, 2, 0).repeat_interleave(5, 0).repeat_interleave(5, 1).int()
    drawn = (sheet[:320, :320] - plain).abs().amax(-1) > 60
    near = clip.whole[0, 0].any(0).repeat_interleave(5, 0).repeat_interleave(5, 1).float()
    near = torch.nn.functional.max_pool2d(near[None], 61, 1, 30)[0] > 0
    near[-1], near[:, -1] = True, True  # the line between pictures
    assert drawn.sum() > 200
    assert drawn[near].sum() > 0.7 * drawn.sum()  # outlines; the words beside them reach further
    colours = {tuple(c) for c in sheet[:320, :320].reshape(-1, 3).tolist()}
    assert len(colours) > 3
    frames, _, _ = frames_of(tmp_path / "moving_mnist.mp4")
    assert frames.shape == (8, 3, 640, 640)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mak",), "did you mean 'make'"),
        (("make", "moving_mnist", "--count", 0, "--out", "x"), "at least 1 clip"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--option", "digit=2"), "did you mean 'digits'"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--option", "digits"), "NAME=VALUE"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--option", "digits=two"), "'two' is no int"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--option", "seed=2"), "write --seed instead"),
        (("make", "cater", "--count", 1, "--out", "x", "--option", "jitter=1"), "'1' is no bool"),
        (("make", "cater", "--count", 1, "--out", "x", "--option", "jitter=yes"), "write true or false"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--option", "digits=3", "digits=4"), "given twice"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--device", "cuda:99"), "try cpu"),
        (("make", "moving_mnist", "--count", 1, "--out", "x", "--device", "meta"), "try cpu"),
        (("show", "moving_mnist", "--first", -1, "--out", "x"), "from 0 on"),
    ],
)
def test_mistakes_are_named(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_without_words_the_usage_is_shown(capsys):
    assert run() == 2
    assert run("--help") == 0
    assert "show  a contact sheet" in capsys.readouterr().out
