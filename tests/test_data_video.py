import contextlib
import json

import av
import cv2
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loci.data.labels import read_labels
from loci.data.mnist_npy import open_mnist
from loci.data.picture import pixel_to_position, resampled, resized
from loci.data.video import image_files, open_images, open_videos
from loci.data.video_file import decode, probe, sought, time_stamps
from loci.data.write import write_clips
from loci.data.write_labels import LabelledFolder, labels
from loci.data.write_moving_mnist import MovingMnistFolder
from loci.data.write_video import write_video
from loci.errors import UserError
from loci.worlds.moving_mnist import MovingMnist

H, W = 32, 48


def counted(count, first=0):
    """Frames whose grey value is their number, times five."""
    grey = 5 * torch.arange(first, first + count)
    return grey[:, None, None, None].expand(-1, 3, H, W).to(torch.uint8).contiguous()


def numbers(frames):
    """Which frames of `counted` these are."""
    return (frames.float().mean((-3, -2, -1)) / 5).round().int().tolist()


@pytest.fixture
def folder(tmp_path):
    write_video(tmp_path / "clip_2.mp4", counted(10), 25)
    write_video(tmp_path / "clip_10.avi", counted(7, first=20), 25, "mjpeg")
    return tmp_path


@pytest.mark.parametrize("name", ["clip_2.mp4", "clip_10.avi"])
def test_decode_any_window(folder, name):
    first = 0 if name == "clip_2.mp4" else 20
    facts = probe(folder / name)
    assert facts.size == (H, W)
    assert numbers(decode(folder / name, facts.frames)) == list(range(first, first + facts.frames))
    assert numbers(decode(folder / name, 3, start=4)) == [first + 4, first + 5, first + 6]
    assert decode(folder / name, 2, size=(16, 24)).shape == (2, 3, 16, 24)
    with pytest.raises(UserError, match="ends before frame 11"):
        decode(folder / name, 12)


@pytest.mark.parametrize(("name", "codec", "form"), [
    ("x.webm", "libvpx-vp9", "yuv420p"), ("x.mkv", "libx264", "yuv420p"), ("x.gif", "gif", "rgb8"),
])  # fmt: skip
def test_formats_whose_header_counts_no_frames_are_cut_into_clips_all_the_same(tmp_path, name, codec, form):
    """Their index, where there is one, names key frames only."""
    with av.open(str(tmp_path / name), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width, stream.pix_fmt = H, W, form
        for t in range(40):
            pixels = np.full((H, W, 3), 40, np.uint8)
            pixels[8:24, t : t + 8] = 240
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=form)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert probe(tmp_path / name).frames == 40
    videos = open_videos(tmp_path / name, length=10, every=10)
    assert len(videos) == 4
    for n in range(4):
        columns = (videos.clips([n]).frames[0, :, 1, 16] > 140).int().argmax(-1)
        assert columns.tolist() == list(range(10 * n, 10 * n + 10))


def test_windows_found_by_their_time_are_the_same_frames(tmp_path):
    """With key frames far apart and frames that lean on later ones."""
    frames = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (100, 3, 4, 6), np.uint8))
    frames = frames.repeat_interleave(8, -2).repeat_interleave(8, -1)
    with av.open(str(tmp_path / "x.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"g": "30", "bf": "3", "preset": "veryfast"})
        stream.height, stream.width, stream.pix_fmt = H, W, "yuv420p"
        for picture in frames.permute(0, 2, 3, 1).contiguous().numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    whole = decode(tmp_path / "x.mp4", 100)
    stamps = time_stamps(tmp_path / "x.mp4")
    assert len(stamps) == 100
    for start in (1, 29, 30, 31, 64, 93):
        assert torch.equal(decode(tmp_path / "x.mp4", 7, start=start, at=stamps[start]), whole[start : start + 7])
    with av.open(str(tmp_path / "x.mp4")) as container:
        first = next(sought(container, container.streams.video[0], stamps[64]))
    assert first.pts == stamps[64]
    wrong = stamps[50] + 1
    assert torch.equal(decode(tmp_path / "x.mp4", 7, start=50, at=wrong), whole[50:57])
    source = open_videos(tmp_path, length=9)
    assert torch.equal(source.clips([10]).frames[0], whole[90:99])


def test_windows_of_a_folder_in_natural_order(folder):
    source = open_videos(folder, length=3)
    assert (len(source), source.size, source.length) == (5, (H, W), 3)
    shown = [numbers(clip) for clip in source.clips([0, 2, 3, 4]).frames]
    assert shown == [[0, 1, 2], [6, 7, 8], [20, 21, 22], [23, 24, 25]]


def test_one_file_is_one_clip_by_default(folder):
    source = open_videos(folder / "clip_10.avi")
    assert (len(source), source.length) == (1, 7)
    clip = source.clips([0])
    assert (clip.index.tolist(), clip.state) == ([0], None)


def test_videos_that_cannot_be_used(folder):
    raw = (folder / "clip_2.mp4").read_bytes()
    (folder / "a_cut.mp4").write_bytes(raw[: len(raw) // 2])
    (folder / "b_text.avi").write_text("#EXTM3U\nhttp://example.com/x\n")
    (folder / "c_empty.mkv").write_bytes(b"")
    source = open_videos(folder, length=8)
    assert len(source) == 1
    assert len(source.skipped) == 4
    assert "has 7 frames, a clip 8" in source.skipped[-1]
    with pytest.raises(UserError, match="none of the videos"):
        open_videos(folder, length=300)
    with pytest.raises(UserError, match="no video: choose one of"):
        probe(folder / "x.txt")
    with pytest.raises(UserError, match="there is no"):
        open_videos(folder / "nowhere")
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match="holds no videos"):
        open_videos(folder / "empty")


def test_a_video_whose_frames_are_damaged(folder):
    path = folder / "clip_10.avi"
    raw = bytearray(path.read_bytes())
    place = raw.index(b"\xff\xd8", len(raw) // 2)
    raw[place + 200 : place + 500] = bytes(300)
    path.write_bytes(raw)
    with pytest.raises(UserError, match=r"clip_10\.avi"):
        decode(path, 7)


def write_images(folder, frames, start=0):
    folder.mkdir(exist_ok=True)
    for n, frame in enumerate(frames, start=start):
        cv2.imwrite(str(folder / f"{n}.png"), frame.permute(1, 2, 0).numpy()[..., ::-1])


def test_images_in_the_order_of_their_numbers(tmp_path):
    frames = counted(12)
    frames[:, 0] = 255  # red, to see that channels are not exchanged
    write_images(tmp_path, frames)
    (tmp_path / "notes.txt").write_text("not an image")
    assert [p.name for p in image_files(tmp_path)] == [f"{n}.png" for n in range(12)]
    source = open_images(tmp_path, length=5)
    assert len(source) == 2
    assert torch.equal(source.clips([1]).frames[0], frames[5:10])


def test_folders_of_folders_of_images(tmp_path):
    for n in range(3):
        write_images(tmp_path / f"video_{n}", counted(4, first=10 * n))
    source = open_images(tmp_path)
    assert [numbers(clip) for clip in source.clips([2, 0]).frames] == [[20, 21, 22, 23], [0, 1, 2, 3]]
    (tmp_path / "video_1" / "0.png").write_bytes(b"\x89PNG but no more")
    source = open_images(tmp_path)
    assert len(source) == 2
    assert "no image that can be read" in source.skipped[0]
    with pytest.raises(UserError, match="not a folder"):
        open_images(tmp_path / "video_0" / "0.png")


def test_moving_mnist_arrays(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (20, 6, 8, 8), np.uint8)
    path = tmp_path / "mnist_test_seq.npy"
    np.save(path, array)
    source = open_mnist(path)
    assert (len(source), source.size, source.length) == (6, (8, 8), 20)
    clip = source.clips([4, 1])
    for entry, n in enumerate((4, 1)):
        for channel in range(3):
            assert (clip.frames[entry, :, channel].numpy() == array[:, n]).all()
    assert clip.background.sum() == 0
    assert open_mnist(path, length=10, size=(4, 4)).clips([0]).frames.shape == (1, 10, 3, 4, 4)
    for options, complaint in (({"split": "train"}, "test sequences only"), ({"length": 21}, "20 frames")):
        with pytest.raises(UserError, match=complaint):
            open_mnist(path, **options)


@pytest.mark.parametrize("what", ["pickle", "floats", "flat", "cut", "text"])
def test_arrays_that_are_none(tmp_path, what):
    path = tmp_path / "x.npy"
    array = {"pickle": np.array([{}], object), "floats": np.zeros((2, 2, 8, 8)), "flat": np.zeros((4, 4), np.uint8)}
    np.save(path, array.get(what, np.zeros((2, 2, 8, 8), np.uint8)))
    if what == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    if what == "text":
        path.write_text("hello")
    with pytest.raises(UserError, match=r"x\.npy"):
        open_mnist(path)


def test_what_the_moving_mnist_world_writes_is_read_back(tmp_path):
    world = MovingMnist(split="test", seed=5, length=12)
    write_clips(MovingMnistFolder(tmp_path, "test"), {"test": world}, 3)
    made = world.clips([0, 1, 2], labels=False).frames
    assert torch.equal(open_mnist(tmp_path / "mnist_test_seq.npy").clips([0, 1, 2]).frames, made)
    assert torch.equal(open_images(tmp_path / "png").clips([0, 1, 2]).frames, made)


def test_labels_written_beside_videos_are_read_back(tmp_path):
    world = MovingMnist(split="test", seed=5, length=12)
    write_clips(LabelledFolder(tmp_path, "test"), {"test": world}, 1)
    made = world.clips([0])
    read = read_labels(tmp_path / "labels" / "00000.json", made.frames[0], world.names, (64, 64), 0)
    for name in ("visible", "whole", "state", "container"):
        assert torch.equal(getattr(read, name), getattr(made, name)), name
    torch.testing.assert_close(read.position, made.position, atol=1e-5, rtol=0)
    assert torch.equal(read.attributes["class"], made.attributes["class"])
    frames = open_videos(tmp_path).clips([0]).frames
    assert (frames.float() - made.frames.float()).abs().mean() < 2
    with pytest.raises(UserError, match="the video has 32x32"):
        read_labels(tmp_path / "labels" / "00000.json", made.frames[0], world.names, (32, 32), 0)


@pytest.fixture(scope="module")
def labelled():
    """A clip, its words, and its labels as a file."""
    world = MovingMnist(split="test", seed=5, size=(32, 32), length=3)
    clip = world.clips([0])
    return clip, world.names, json.dumps(labels(clip, world, ["x#0", "x#1", "x#2"])).encode()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_labels_are_read_or_refused(tmp_path, labelled, data):
    clip, names, content = labelled
    raw = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    path = tmp_path / "x.json"
    path.write_bytes(raw if data.draw(st.booleans()) else raw[:cut])
    with contextlib.suppress(UserError):
        assert read_labels(path, clip.frames[0], names, (32, 32), 0).visible.shape == clip.visible.shape


def test_resized_frames_are_averaged_and_masks_sampled():
    frame = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    pooled = frame.reshape(4, 2, 6, 2, 3).mean((1, 3))
    assert np.abs(resized(frame, (4, 6)).astype(float) - pooled).max() <= 0.5
    assert resized(frame[..., :1], (16, 24)).shape == (16, 24, 1)
    mask = np.zeros((9, 9), bool)
    mask[3:6, 3:6] = True
    assert resampled(mask, (3, 3)).tolist() == [[False] * 3, [False, True, False], [False] * 3]


def test_positions_keep_their_place_when_frames_change_size():
    """A point at the middle of the left half stays there: edges, not centres of pixels, are what sizes share."""
    assert pixel_to_position(np.float64(7.0), 8, 8) == pytest.approx(1)
    assert pixel_to_position(np.float64(1.5), 8, 4) == pytest.approx(2 * 0.5 / 3 - 1)
