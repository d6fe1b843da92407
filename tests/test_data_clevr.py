import contextlib

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfrecords
from loci.data.clevr import OFFICIAL, open_clevr
from loci.data.clip import ABSENT, OCCLUDED, VISIBLE
from loci.errors import UserError

H, W = 12, 16


def picture(n):
    return np.random.default_rng(n).integers(0, 256, (H, W, 3), np.uint8)


def features(n, grouped=True):
    """Entry 0 is the background; objects 1 and 3 are there, 2 is not, 4 is wholly hidden."""
    masks = np.zeros((5, H, W, 1), np.uint8)
    masks[1, 2:6, 3:9] = 255
    masks[2, 8:, 8:] = 255  # what is not visible is not an object, whatever its mask says
    masks[3, 6:9, 3:9] = 255
    masks[0] = 255 - masks[1:].max(0)
    image = picture(n)
    return {
        "image": [bytes(v) for v in (image.reshape(-1, 3) if grouped else image.reshape(-1, 1))],
        "mask": [bytes(v) for v in masks.reshape(-1, 1)],
        "visibility": np.float32([1, 1, 0, 1, 1]),
        "x": np.float32([0, 1, 2, 3, 4]), "y": np.float32([0, -1, -2, -3, -4]),
        "z": np.float32([0, 0.5, 0.5, 0.5, 0.5]),
        "rotation": np.float32([0] * 5),
        "pixel_coords": np.float32([[0, 0, 0], [5.5, 3.5, 9], [0, 0, 0], [6, 7, 9], [15, 0, 9]]),
        **{name: [bytes([v]) for v in (0, 1, 0, 2, 1)] for name in ("size", "material", "shape", "color")},
    }  # fmt: skip


def record(n, grouped=True, **changed):
    made = {**features(n, grouped), **changed}
    return tfrecords.example(**{name: values for name, values in made.items() if values is not None})


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def path(tmp_path, request):
    return tfrecords.write(tmp_path / "x.tfrecords", [record(n, grouped=n % 2 == 0) for n in range(20)], request.param)


def test_read_to_the_last_byte(path):
    parts = {split: open_clevr(path, split=split) for split in ("train", "val", "test")}
    assert [len(source) for source in parts.values()] == [14, 2, 4]
    assert parts["test"].size == (H, W)
    clip = parts["test"].clips([3, 0])  # records 19 and 8
    for entry, n in enumerate((19, 8)):
        assert (clip.frames[entry, 0].permute(1, 2, 0).numpy() == picture(n)).all()


def test_what_the_record_says(path):
    source = open_clevr(path)
    clip = source.clips([0])
    assert clip.visible.shape == (1, 1, 4, H, W)
    assert clip.visible[0, 0].sum((1, 2)).tolist() == [24, 0, 18, 0]
    assert clip.visible[0, 0, 0, 2:6, 3:9].all()
    assert clip.state[0, 0].tolist() == [VISIBLE, ABSENT, VISIBLE, OCCLUDED]
    assert clip.world[0, 0, 2].tolist() == [3, -3, 0.5]
    assert clip.position[0, 0, 0].tolist() == pytest.approx([2 * 3.5 / (H - 1) - 1, 2 * 5.5 / (W - 1) - 1])
    assert clip.position[0, 0, 3].tolist() == pytest.approx([-1, 1])
    assert clip.attributes["shape"].tolist() == [[1, -1, 2, 1]]
    assert source.names["colour"][2] == "2"


def test_an_image_may_be_shown_for_long_and_at_another_size(path):
    clip = open_clevr(path, length=30, size=(6, 8)).clips([0])
    assert clip.frames.shape == (1, 30, 3, 6, 8)
    assert (clip.frames == clip.frames[:, :1]).all()
    assert clip.state.shape == (1, 30, 4)
    assert clip.visible[0, 7].sum((1, 2)).tolist() == pytest.approx([6, 0, 4.5, 0], abs=3)


def test_the_official_file_is_not_counted(tmp_path):
    source = open_clevr(tfrecords.write(tmp_path / OFFICIAL, [record(n) for n in range(10)]))
    assert len(source) == 20_000
    source.clips([1])
    with pytest.raises(UserError, match="no record 18"):
        source.clips([2])


def test_a_cut_file_says_which_record_and_the_way_out(path):
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"record \d+ cannot be read: .*cut off; the \d+ before it .* limit="):
        open_clevr(path)
    assert len(open_clevr(path, limit=10)) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"image": [b"abc"] * 100}, "3 to 4"),
        ({"image": []}, "got 0 bytes"),
        ({"image": None}, "no key 'image'"),
        ({"mask": [b"\0"] * 10}, "masks of 12x16"),
        ({"visibility": np.float32([1, np.nan, 0, 1, 1])}, "finite"),
        ({"pixel_coords": np.float32([1, 2, 3])}, "finite numbers expected"),
        ({"x": np.int64([1, 2, 3, 4, 5])}, "list of floats, not of ints"),
        ({"shape": [b"\x01", b"\x99", b"\0", b"\0", b"\0"]}, "attributes of 4 objects"),
    ],
)
def test_records_that_say_what_cannot_be(tmp_path, change, complaint):
    good = [record(n) for n in range(8)]
    path = tfrecords.write(tmp_path / "x", [*good, record(8), record(9, **change)])
    source = open_clevr(path)
    source.clips([0])
    with pytest.raises(UserError, match=complaint) as caught:
        source.clips([1])
    assert "record 9" in str(caught.value)


def test_options_that_cannot_be(path):
    with pytest.raises(UserError, match="limit 0"):
        open_clevr(path, limit=0)
    with pytest.raises(UserError, match="none of its first 3 records"):
        open_clevr(path, limit=3)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_contents_are_read_or_refused(tmp_path, data):
    """The checksums are right, what they seal is not."""
    raw = bytearray(record(0))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    path = tfrecords.write(tmp_path / "x", [bytes(raw if data.draw(st.booleans()) else raw[:cut])])
    with contextlib.suppress(UserError):
        assert torch.isfinite(open_clevr(path, split="train").clips([0]).position).all()
