import contextlib
import logging

import cv2
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfrecords
from loci.data.clip import EVENTS, OCCLUDED, VISIBLE
from loci.data.movi import open_movi
from loci.errors import UserError

T, S = 6, 16


def video(n):
    return np.random.default_rng(n).integers(0, 256, (T, S, S, 3), np.uint8)


def segments():
    result = np.zeros((T, S, S, 1), np.uint8)
    for t in range(T):
        result[t, 2:6, t : t + 4] = 1
        if t < 4:
            result[t, 10:14, 3:9] = 2
    return result


def png(frame):
    return cv2.imencode(".png", frame[..., ::-1] if frame.shape[-1] == 3 else frame)[1].tobytes()


def features(n, kind="png"):
    where = np.zeros((2, T, 2), np.float32)
    where[0] = [((t + 2) / S, 4 / S) for t in range(T)]  # x, y
    where[1] = (6 / S, 12 / S)
    stored = {
        "png": ([png(f) for f in video(n)], [png(f) for f in segments()]),
        "raw": ([f.tobytes() for f in video(n)], [f.tobytes() for f in segments()]),
        "one": ([video(n).tobytes()], [segments().tobytes()]),
    }[kind]
    return {
        "video": stored[0],
        "segmentations": stored[1],
        "metadata__height": np.int64([S]), "metadata__width": np.int64([S]), "metadata__num_instances": np.int64([2]),
        "instances__image_positions": where,
        "instances__positions": np.arange(2 * T * 3, dtype=np.float32),
        "instances__visibility": np.int64([[16] * T, [24] * 4 + [0] * 2]),
        "instances__shape_label": np.int64([2, 0]),
        "instances__color_label": np.int64([6, 1]), "instances__material_label": np.int64([1, 0]),
        "instances__size_label": np.int64([0, 1]),
        "events__collisions__frame": np.int64([3, 3, 3, 5]),
        "events__collisions__instances": np.int64([[1, 0], [0, 1], [1, 65535], [0, 1]]),
    }  # fmt: skip


def record(n, kind="png", **changed):
    made = {**features(n, kind), **changed}
    return tfrecords.example(**{k: v for k, v in made.items() if v is not None})


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "movi_a" / "128x128" / "1.0.0"
    place.mkdir(parents=True)
    tfrecords.write(place / "movi_a-train.tfrecord-00000-of-00002", [record(0), record(1)])
    tfrecords.write(place / "movi_a-train.tfrecord-00001-of-00002", [record(2), record(3), record(4)])
    tfrecords.write(place / "movi_a-validation.tfrecord-00000-of-00001", [record(9)])
    return tmp_path


def test_splits_and_shards(folder, caplog):
    train = open_movi(folder, split="train")
    assert (len(train), train.size, train.length) == (5, (S, S), T)
    assert (train.clips([3], labels=False).frames[0].permute(0, 2, 3, 1).numpy() == video(3)).all()
    assert len(open_movi(folder, split="val")) == 1
    with caplog.at_level(logging.WARNING):
        assert len(open_movi(folder, split="test")) == 1
    assert "no test split: its validation split is used" in caplog.text


@pytest.mark.parametrize("kind", ["png", "raw", "one"])
@pytest.mark.parametrize("said", [True, False], ids=["sized", "unsized"])
def test_frames_however_they_are_stored(tmp_path, kind, said):
    if kind == "one" and not said:
        return  # all frames in one string cannot be told apart without a size
    change = {} if said else {"metadata__height": None, "metadata__width": None}
    tfrecords.write(tmp_path / "x-train.tfrecord", [record(7, kind, **change)])
    clip = open_movi(tmp_path, split="train").clips([0])
    assert (clip.frames[0].permute(0, 2, 3, 1).numpy() == video(7)).all()
    for n in (1, 2):
        assert (clip.visible[0, :, n - 1].numpy() == (segments()[..., 0] == n)).all()


def test_what_the_record_says(folder):
    source = open_movi(folder, split="val")
    clip = source.clips([0])
    assert clip.state[0, :, 1].tolist() == [VISIBLE] * 4 + [OCCLUDED] * 2
    words = {name: [source.names[name][v] for v in values[0]] for name, values in clip.attributes.items()}
    assert words == {"shape": ["sphere", "cube"], "size": ["small", "large"], "colour": ["red", "brown"],
                     "material": ["rubber", "metal"]}  # fmt: skip
    assert clip.events[0].tolist() == [[EVENTS.index("collision"), t, t, 0, 1] for t in (3, 5)]
    assert clip.world[0, 2, 1].tolist() == [T * 3 + 6, T * 3 + 7, T * 3 + 8]


def test_positions_fit_the_masks(folder):
    clip = open_movi(folder, split="val").clips([0])
    grid = torch.linspace(-1, 1, S)
    for t in range(4):
        for n in range(2):
            rows, columns = torch.nonzero(clip.visible[0, t, n], as_tuple=True)
            centre = [grid[rows].mean().item(), grid[columns].mean().item()]
            assert clip.position[0, t, n].tolist() == pytest.approx(centre, abs=1e-5)


def test_names_with_dots(tmp_path):
    data = tfrecords.example(**{k.replace("__", "."): v for k, v in features(1).items()})
    tfrecords.write(tmp_path / "x-train.tfrecord", [data])
    assert open_movi(tmp_path, split="train").clips([0]).state.shape == (1, T, 2)


def test_shorter_clips_at_another_size(folder):
    clip = open_movi(folder, split="train", size=(8, 8), length=3).clips([0, 4])
    assert clip.frames.shape == (2, 3, 3, 8, 8)
    assert clip.visible.shape == (2, 3, 2, 8, 8)
    assert clip.events[0].tolist() == []
    with pytest.raises(UserError, match="7 frames expected, got 6"):
        open_movi(folder, split="train", length=7).clips([0])


def test_damaged_shards_are_used_up_to_the_damage_and_reported(folder):
    first, second = sorted(folder.rglob("*-train.*"))
    second.write_bytes(second.read_bytes()[:-100])
    source = open_movi(folder, split="train")
    assert len(source) == 4
    assert "record 2 cannot be read" in source.skipped[0]
    first.write_bytes(b"something else altogether")
    source = open_movi(folder, split="train")
    assert len(source) == 2
    assert "no TFRecord file" in source.skipped[0]
    assert (source.clips([1]).frames[0].permute(0, 2, 3, 1).numpy() == video(3)).all()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"video": [b"\x89PNG"] * T}, "picture"),
        ({"video": None}, "no key 'video'"),
        ({"segmentations": [png(np.full((S, S, 1), 3, np.uint8))] * T}, "3 objects"),
        ({"segmentations": [png(f) for f in segments()[:3]]}, "objects in 6 frames"),
        ({"instances__image_positions": np.float32([0] * 7)}, "7 numbers"),
        ({"instances__shape_label": np.int64([2, 11])}, "labels of shape, from 0 to 10"),
        ({"instances__visibility": np.int64([1, 2])}, "reshape"),
        ({"events__collisions__instances": np.int64([[1, 7], [0, 1], [0, 1], [0, 1]])}, "there are 2"),
        ({"metadata__height": np.int64([2**20]), "metadata__width": np.int64([2**20])}, "frames of"),
    ],
)
def test_records_that_say_what_cannot_be(tmp_path, change, complaint):
    tfrecords.write(tmp_path / "x-train.tfrecord", [record(0), record(1, **change)])
    source = open_movi(tmp_path, split="train")
    source.clips([0])
    with pytest.raises(UserError, match=complaint) as caught:
        source.clips([1])
    assert "record 1" in str(caught.value)


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        open_movi(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"\*-train\.tfrecord\*"):
        open_movi(tmp_path, split="train")
    (tmp_path / "x-train.tfrecord").write_bytes(b"")
    with pytest.raises(UserError, match="none of the records"):
        open_movi(tmp_path, split="train")


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_contents_are_read_or_refused(tmp_path, data):
    raw = bytearray(record(0, data.draw(st.sampled_from(["png", "raw"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    tfrecords.write(tmp_path / "x-train.tfrecord", [bytes(raw if data.draw(st.booleans()) else raw[:cut])])
    with contextlib.suppress(UserError):
        open_movi(tmp_path, split="train").clips([0])
