import contextlib
import io
import logging
import sys
import time

import av
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loci.errors import UserError
from loci.track.decode import MAX_PIXELS
from loci.track.video_in import open_video
from loci.track.video_out import video_out
from loci.track.whole import cut_off, without_index

SIZE = (48, 64)
FORMATS = {
    "mp4": ("libx264", "yuv420p"),
    "avi": ("mjpeg", "yuvj420p"),
    "gif": ("gif", "rgb8"),
    "webm": ("libvpx-vp9", "yuv420p"),
    "mov": ("mpeg4", "yuv420p"),
}


def picture(t, size=SIZE):
    pixels = np.full((*size, 3), 40, np.uint8)
    pixels[10:30, 2 * t : 2 * t + 20] = [220, 40, 60]
    return pixels


def make(path, count=12, size=SIZE, codec=None, noise=0, flags="+faststart"):
    codec, form = codec or FORMATS[path.suffix[1:]]
    grain = np.random.default_rng(0)
    options = {"movflags": flags} if path.suffix in (".mp4", ".mov") else {}
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width = size
        stream.pix_fmt = form
        container.start_encoding()
        for t in range(count):
            pixels = picture(t, size) + grain.integers(0, noise + 1, (*size, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=form)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    return {form: make(folder / f"sample.{form}") for form in FORMATS}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_rgb_in_order(samples, form):
    notes = []
    with open_video(samples[form], note=notes.append) as video:
        assert video.facts.size == SIZE
        assert video.facts.rate == pytest.approx(10, rel=0.01)
        assert video.facts.count in (None, 12)
        assert not video.facts.live
        frames = list(video)
    assert not notes
    assert [frame.index for frame in frames] == list(range(12))
    assert [frame.time for frame in frames] == pytest.approx(np.arange(12) / 10, abs=0.011)
    for t, frame in enumerate(frames):
        assert frame.pixels.dtype == np.uint8
        assert frame.pixels[20, 2 * t + 10].tolist() == pytest.approx(
            [220, 40, 60], abs=64
        )  # red first; a gif has few blues
        assert frame.pixels[40, 5].tolist() == pytest.approx([40, 40, 40], abs=48)


def test_a_folder_of_images_is_in_the_order_of_numbers(tmp_path):
    from PIL import Image

    for t in (10, 2, 1):
        Image.fromarray(picture(t)).save(tmp_path / f"frame{t}.png")
    (tmp_path / "frame3.png").write_text("not a picture")
    (tmp_path / "notes.txt").write_text("no picture either")
    notes = []
    with open_video(tmp_path, note=notes.append) as video:
        frames = list(video)
    assert [int(np.argmax(frame.pixels[20, :, 0] > 128)) // 2 for frame in frames] == [1, 2, 10]
    assert len(notes) == 1
    assert "1 of 4 images" in notes[0]
    assert "frame3.png" in notes[0]


def test_our_own_video_is_read_back_and_odd_sides_are_made_even(tmp_path):
    with video_out(tmp_path / "out.mp4", rate=12.5) as write:
        for t in range(5):
            write(picture(t, (33, 51)))
    with open_video(tmp_path / "out.mp4") as video:
        frames = list(video)
    assert video.facts.size == (34, 52)
    assert video.facts.rate == 12.5
    assert video.facts.count == len(frames) == 5
    assert frames[4].pixels[20, 16].tolist() == pytest.approx([220, 40, 60], abs=28)
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]


def test_nothing_is_left_of_a_video_that_failed(tmp_path):
    def fail():
        with video_out(tmp_path / "out.mp4", rate=10) as write:
            write(picture(0))
            write(None)

    with pytest.raises(AttributeError):
        fail()
    with video_out(tmp_path / "none.mp4", rate=10):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["mp4", "avi", "webm"])
def test_a_cut_video_is_read_up_to_the_cut(tmp_path, form):
    whole = make(tmp_path / f"whole.{form}", 60, noise=30).read_bytes()
    cut = tmp_path / f"cut.{form}"
    cut.write_bytes(whole[: int(len(whole) * 0.7)])
    notes = []
    with open_video(cut, note=notes.append) as video:
        count = sum(1 for _ in video)
    assert 10 < count < 58
    assert len(notes) >= 1
    assert f"ended at frame {count}" in notes[-1]


@pytest.mark.parametrize(("form", "flags", "share"), [
    ("gif", "", 0.6), ("mkv", "", 0.97), ("webm", "", 0.97), ("mp4", "frag_keyframe+empty_moov", 0.6),
])  # fmt: skip
def test_a_cut_that_only_the_structure_tells_of_is_noticed(tmp_path, form, flags, share):
    codec = ("libx264", "yuv420p") if form == "mkv" else None
    for end in (share, 1):
        path = make(tmp_path / f"clip.{form}", 60, noise=30, codec=codec, flags=flags)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * end)])
        notes = []
        with open_video(path, note=notes.append) as video:
            count = sum(1 for _ in video)
        assert ([f"ended at frame {count}" in note for note in notes] == [True]) == (end < 1)
        assert (count == 60) == (end == 1)


def test_a_recording_that_broke_off_before_its_index_is_told_apart(tmp_path):
    whole = make(tmp_path / "whole.mp4", 60, noise=30, flags="-faststart").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: int(len(whole) * 0.8)])
    with pytest.raises(UserError, match="before its index"):
        open_video(tmp_path / "cut.mp4")


@pytest.mark.parametrize("content", [
    b"\0\0\0\x01mdat" + b"\xff" * 8, b"\0\0\0\x08ftyp\0\0\0\x01mdat" + b"\xff" * 9, b"\0\0\0\x08ftyp\0\0\0\x03moov",
    b"\x1aE\xdf\xa3\x01" + b"\xff" * 7, b"\x1aE\xdf\xa3\x80\x18S\x80g\x01\x7f" + b"\xff" * 6, b"\x1aE\xdf\xa3",
    b"GIF8", b"",
])  # fmt: skip
def test_a_structure_that_makes_no_sense_is_no_trap(tmp_path, content):
    (tmp_path / "odd.mp4").write_bytes(content)
    assert isinstance(cut_off(tmp_path / "odd.mp4"), bool)
    assert isinstance(without_index(tmp_path / "odd.mp4"), bool)


def test_a_note_is_a_warning_in_the_log_by_default(tmp_path, caplog):
    whole = make(tmp_path / "whole.avi", 40).read_bytes()
    (tmp_path / "cut.avi").write_bytes(whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING), open_video(tmp_path / "cut.avi") as video:
        list(video)
    assert any("of 40" in record.message for record in caplog.records)


def absurd_avi(samples):
    data = bytearray(make(samples["avi"].with_name("raw.avi"), 3, codec=("rawvideo", "bgr24")).read_bytes())
    big = (100_000).to_bytes(4, "little")
    header, form = data.index(b"avih") + 8, data.index(b"strf") + 8
    data[header + 32 : header + 40] = big + big
    data[form + 4 : form + 12] = big + big
    return bytes(data)


def absurd_y4m(_):
    return b"YUV4MPEG2 W100000 H100000 F25:1 Ip A1:1 C420jpeg\nFRAME\n" + bytes(5000)


def absurd_png(_):
    import struct
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def absurd_gif(samples):
    data = bytearray(samples["gif"].read_bytes())
    data[6:10] = b"\xff\xff\xff\xff"  # 65 535 squared
    return bytes(data)


def wide_gif(samples):
    data = bytearray(samples["gif"].read_bytes())
    data[6:10] = (57292).to_bytes(2, "little") + (216).to_bytes(2, "little")  # found by flipping bytes
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("wide.gif", wide_gif),
        ("text.mp4", lambda _: b"These are not the frames you are looking for.\n" * 99),
        ("text.txt", lambda _: b"Some plain text, which FFmpeg would draw on a terminal.\n" * 99),
        ("empty.mp4", lambda _: b""),
        ("headless.mp4", lambda samples: samples["mp4"].read_bytes()[:300]),
        ("absurd.avi", absurd_avi),
        ("absurd.y4m", absurd_y4m),
        ("absurd.png", absurd_png),
        ("absurd.gif", absurd_gif),
        ("playlist.m3u8", lambda samples: f"#EXTM3U\n#EXTINF:1,\n{samples['mp4']}\n#EXT-X-ENDLIST\n".encode()),
        ("list.ffconcat", lambda samples: f"ffconcat version 1.0\nfile {samples['mp4']}\n".encode()),
    ],
)
def test_what_is_no_video_is_refused_at_once(tmp_path, samples, name, content):
    (tmp_path / name).write_bytes(content(samples))
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    with pytest.raises(UserError, match=name):
        open_video(tmp_path / name)
    assert time.perf_counter() - start < 1
    assert psutil.Process().memory_info().rss - before < 200e6


def test_zero_frames_are_refused(tmp_path):
    make(tmp_path / "none.avi", count=0)
    with pytest.raises(UserError, match="no frame"):
        open_video(tmp_path / "none.avi")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_file.mp4", "no file or folder"),
        ("camera:77", "no camera 77"),
        ("camera:front", "camera:0"),
        ("/dev/zero", "no ordinary file"),
    ],
)
def test_what_is_not_there_is_said(spec, words):
    with pytest.raises(UserError, match=words):
        open_video(spec)


def test_a_folder_without_images_is_refused_and_its_videos_named(tmp_path):
    with pytest.raises(UserError, match="holds no images"):
        open_video(tmp_path)
    make(tmp_path / "tank.avi", 2)
    with pytest.raises(UserError, match=r"tank\.avi"):
        open_video(tmp_path)


class Standard:
    def __init__(self, data):
        self.buffer = io.BufferedReader(io.BytesIO(data))


def test_standard_input_encoded(samples, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Standard(samples["avi"].read_bytes()))
    with open_video("-") as video:
        assert video.facts.live
        assert sum(1 for _ in video) == 12


def test_standard_input_raw(monkeypatch):
    data = b"".join(picture(t).tobytes() for t in range(4))
    monkeypatch.setattr(sys, "stdin", Standard(data + b"half a frame"))
    with open_video("-", raw=SIZE, rate=5) as video:
        frames = list(video)
    assert [frame.time for frame in frames] == pytest.approx([0, 0.2, 0.4, 0.6])
    assert all((frame.pixels == picture(t)).all() for t, frame in enumerate(frames))


def test_raw_needs_a_sane_size_and_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Standard(b""))
    with pytest.raises(UserError, match="positive"):
        open_video("-", raw=(0, 10))
    with pytest.raises(UserError, match="no frame"):
        open_video("-", raw=SIZE)
    with pytest.raises(UserError, match="raw size"):
        open_video("a.mp4", raw=SIZE)


def test_memory_stays_flat(tmp_path):
    with video_out(tmp_path / "long.mp4", rate=25, quality=40) as write:
        for t in range(600):
            write(picture(t % 20, (240, 320)))
    process, seen = psutil.Process(), {}
    with open_video(tmp_path / "long.mp4") as video:
        for frame in video:
            if frame.index in (100, 599):
                seen[frame.index] = process.memory_info().rss
    assert seen[599] - seen[100] < 20e6  # 500 frames would be 115 MB


damage = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255), st.integers(1, 8)), min_size=1, max_size=30)


@pytest.mark.parametrize("form", FORMATS)
@settings(deadline=None, max_examples=60, derandomize=True)
@given(cut=st.floats(0, 1.3), hits=damage, drop=st.tuples(st.floats(0, 1), st.integers(0, 40)))
def test_damage_neither_crashes_nor_hangs(samples, form, cut, hits, drop):
    data = bytearray(samples[form].read_bytes())
    for where, value, length in hits:
        at = int(where * (len(data) - 1))
        data[at : at + length] = bytes([value]) * len(data[at : at + length])
    at = int(drop[0] * len(data))
    del data[at : at + drop[1]]
    damaged = samples[form].with_name(f"damaged.{form}")
    damaged.write_bytes(data[: int(cut * len(data))])
    start = time.perf_counter()
    # To refuse it is one good answer.
    with contextlib.suppress(UserError), open_video(damaged, note=lambda _: None) as video:
        for frame in video:
            assert frame.pixels.shape == (*video.facts.size, 3)
            assert np.prod(frame.pixels.shape[:2]) <= MAX_PIXELS
    assert time.perf_counter() - start < 5
