import gzip
import json
import logging

import av
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loci.data.cater import open_cater
from loci.data.clip import CARRIED, CONTAINED, EVENTS, OCCLUDED, VISIBLE
from loci.data.write import write_clips
from loci.data.write_cater import CaterFolder
from loci.errors import UserError
from loci.worlds.cater import Cater

FRAMES = 40
H, W = 24, 32


def write_avi(path, frames):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=24, options={"qmin": "1", "qmax": "1"})
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuvj444p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def thing(instance, shape, size, sized, places):
    """An object that rests at each place from its frame on."""
    locations, here = {}, places[0]
    for t in range(FRAMES):
        here = places.get(t, here)
        locations[str(t)] = list(here)
    return {
        "shape": shape, "size": size, "sized": sized, "material": "metal", "color": "gold" if shape == "spl" else "red",
        "instance": instance, "rotation": 10.0, "3d_coords": list(places[0]), "pixel_coords": [1, 2, 3.0],
        "locations": locations,
    }  # fmt: skip


def scene(x=0.5, y=-0.5):
    """A cone goes over the snitch, a larger one over both; they slide; the larger and then the smaller one leave."""
    slide = {22: (0, -1, 0.3), 23: (-1, -1.5, 0.3), 24: (-2, -2, 0.3)}
    return {
        "image_filename": "CATER_new_000000.avi",
        "objects": [
            thing("Spl_0", "spl", "small", 0.3, {0: (x, y, 0.34), **slide}),
            thing("Cone_0", "cone", "medium", 0.5, {0: (2, 2, 0.5), 10: (x, y, 0.5), **slide, 36: (1, 1, 0.5)}),
            thing("Cone_1", "cone", "large", 0.75, {0: (-2, 2, 0.7), 20: (x, y, 0.7), **slide, 30: (2, 2, 0.7)}),
        ],
        "movements": {
            "Spl_0": [["_slide", None, 21, 24], ["_no_op", None, 28, 30]],
            "Cone_0": [["_contain", "Spl_0", 5, 10], ["_slide", None, 21, 24], ["_pick_place", None, 34, 37]],
            "Cone_1": [["_contain", "Cone_0", 15, 20], ["_slide", None, 21, 24], ["_pick_place", None, 28, 31]],
        },
        "directions": {},
        "relationships": {},
        "split": "new",
        "image_index": 0,
    }


def moving_square(seed):
    frames = np.full((FRAMES, H, W, 3), 60, np.uint8)
    for t in range(FRAMES):
        frames[t, 4:12, (t + seed) % 20 : (t + seed) % 20 + 8] = (200, 160, 40)
    return frames


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Ten good videos in the published layout, with lists."""
    root = tmp_path_factory.mktemp("cater")
    for name in ("videos", "scenes", "lists/localize"):
        (root / name).mkdir(parents=True)
    for n in range(10):
        write_avi(root / "videos" / f"CATER_new_{n:06d}.avi", moving_square(n))
        (root / "scenes" / f"CATER_new_{n:06d}.json").write_text(json.dumps(scene()))
    lists = {"train": range(7), "train_subsetT": range(5), "train_subsetV": range(5, 7), "val": range(7, 10)}
    for name, members in lists.items():
        lines = "".join(f"CATER_new_{n:06d}.avi 7\n" for n in members)
        (root / "lists" / "localize" / f"{name}.txt").write_text(lines)
    return root


@pytest.fixture
def folder(published, tmp_path):
    """The same, to be damaged: videos are links, the rest are copies."""
    for name in ("videos", "scenes", "lists/localize"):
        (tmp_path / name).mkdir(parents=True)
        for path in (published / name).iterdir():
            if name == "videos":
                (tmp_path / name / path.name).symlink_to(path)
            else:
                (tmp_path / name / path.name).write_bytes(path.read_bytes())
    return tmp_path


def change(folder, n, edit):
    path = folder / "scenes" / f"CATER_new_{n:06d}.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_the_official_lists(published):
    assert [len(open_cater(published, split=split)) for split in ("train", "val", "test")] == [5, 2, 3]
    assert open_cater(published, split="test").videos[0] == "CATER_new_000007.avi"


def test_frames_are_the_videos(published):
    source = open_cater(published, split="train")
    assert (source.size, source.length) == ((H, W), FRAMES)
    clip = source.clips([3, 1], labels=False)
    assert clip.frames.shape == (2, FRAMES, 3, H, W)
    assert clip.index.tolist() == [3, 1]
    for entry, n in enumerate((3, 1)):
        truth = torch.from_numpy(moving_square(n)).permute(0, 3, 1, 2)
        assert (clip.frames[entry].float() - truth.float()).abs().mean() < 2
    assert clip.position is None


def test_containment_nests_and_ends_with_the_next_pick_place(published):
    clip = open_cater(published).clips([0])
    snitch, inner, outer = clip.container[0].T.tolist()
    assert snitch == [-1] * 10 + [1] * 24 + [-1] * 6
    assert inner == [-1] * 20 + [2] * 8 + [-1] * 12
    assert outer == [-1] * FRAMES
    states = clip.state[0].T.tolist()
    assert states[0] == [VISIBLE] * 10 + [CONTAINED] * 12 + [CARRIED] * 3 + [CONTAINED] * 9 + [VISIBLE] * 6
    assert states[1] == [VISIBLE] * 20 + [CONTAINED] * 2 + [CARRIED] * 3 + [CONTAINED] * 3 + [VISIBLE] * 12
    assert states[2] == [VISIBLE] * FRAMES


def test_what_else_the_scene_says(published):
    source = open_cater(published)
    clip = source.clips([0])
    assert clip.world[0, 0, 0].tolist() == pytest.approx([0.5, -0.5, 0.34])
    assert clip.world[0, -1, 0].tolist() == pytest.approx([-2, -2, 0.3])
    events = [[EVENTS[kind], *rest] for kind, *rest in clip.events[0].tolist()]
    assert ["contain", 15, 20, 2, 1] in events
    assert ["pick_place", 34, 37, 1, -1] in events
    assert len(events) == 8
    names = {name: [words[v] for v in clip.attributes[name][0] if v >= 0] for name, words in source.names.items()}
    assert names["shape"] == ["spl", "cone", "cone"]
    assert names["size"] == ["small", "medium", "large"]
    assert names["colour"] == ["gold", "red", "red"]
    assert clip.attributes["snitch_class"].tolist() == [[7, -1, -1]]  # (-2,-2): row 1, column 1
    assert (clip.visible, clip.background) == (None, None)


def test_shorter_clips_are_the_beginning(published):
    source = open_cater(published, length=12)
    clip = source.clips([0])
    whole = open_cater(published).clips([0])
    assert torch.equal(clip.frames, whole.frames[:, :12])
    assert torch.equal(clip.state, whole.state[:, :12])
    assert (
        clip.attributes["snitch_class"][0, 0] == 0 * 6 + 0 + 6 * 2 + 3
    )  # of its own last frame: x in [0,1), y in [-1,0)


def test_another_size(published):
    clip = open_cater(published, size=(12, 16)).clips([0])
    whole = open_cater(published).clips([0])
    assert clip.frames.shape[-2:] == (12, 16)
    pooled = torch.nn.functional.avg_pool2d(whole.frames[0].float(), 2)
    assert (clip.frames[0].float() - pooled).abs().max() <= 1
    assert torch.equal(clip.position, whole.position)


def test_a_batch_pads_objects(folder):
    change(folder, 8, lambda s: (s["objects"].pop(2), s["movements"].pop("Cone_1")))
    clip = open_cater(folder).clips([0, 1, 2])
    assert clip.state[:, 0].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert clip.attributes["shape"][1].tolist()[2] == -1
    assert (clip.container[1, :, 2] == -1).all()
    assert (clip.events[1, -1] == -1).all()


def test_without_lists_by_sorted_name(folder):
    for path in (folder / "lists" / "localize").iterdir():
        path.unlink()
    sizes = {split: open_cater(folder, split=split).videos for split in ("train", "val", "test")}
    assert [len(v) for v in sizes.values()] == [6, 1, 3]
    assert sizes["train"] + sizes["val"] + sizes["test"] == tuple(f"CATER_new_{n:06d}.avi" for n in range(10))


def test_everything_that_cannot_be_used_is_skipped_and_reported(folder, caplog):
    lists = folder / "lists" / "localize"
    with (lists / "train_subsetT.txt").open("a") as file:
        file.write("CATER_new_000077.avi 7\n")
    (folder / "scenes" / "CATER_new_000001.json").unlink()
    cut = folder / "videos" / "CATER_new_000002.avi"
    whole = cut.read_bytes()
    cut.unlink()
    cut.write_bytes(whole[: len(whole) // 2])
    (folder / "scenes" / "CATER_new_000003.json").write_text('{"objects": [')
    change(folder, 4, lambda s: s["objects"][0]["locations"].pop("17"))
    with caplog.at_level(logging.WARNING):
        source = open_cater(folder, split="train")
    assert source.videos == ("CATER_new_000000.avi",)
    assert len(source.skipped) == 5
    text = "\n".join(source.skipped)
    for what in ("000077.avi is listed but not there", "000001.json is missing", "000002.avi", "JSON", "'17'"):
        assert what in text
    assert [record.message for record in caplog.records] == [f"{folder}: 5 skipped, first: {source.skipped[0]}"]


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda s: s["objects"][0].pop("locations"), "no 'locations'"),
        (lambda s: s.pop("movements"), "no 'movements'"),
        (lambda s: s["objects"][0].update(shape="cube"), "one snitch"),
        (lambda s: s["objects"][1].update(color="pink"), "colour 'pink'"),
        (lambda s: s["objects"][0]["locations"].update({"3": [1, 2]}), "as it should be"),
        (lambda s: s["objects"][0]["locations"].update({"3": [1, 2, float("nan")]}), "finite"),
        (lambda s: s["movements"]["Cone_0"].append(["_contain", "Nobody_3", 1, 2]), "Nobody_3"),
        (lambda s: s["movements"]["Cone_0"].append(["_contain", "Spl_0", 30, -2]), "no movement"),
        (lambda s: s["movements"]["Cone_0"].append(["_explode", None, 3, 4]), "_explode"),
        (lambda s: s["objects"][0]["locations"].update({"39": [2.5, 2.5, 0.3]}), "the list says class 7, the scene 35"),
        (lambda s: s.clear(), "objects"),
    ],
)
def test_scenes_that_say_what_cannot_be(folder, edit, complaint):
    change(folder, 7, edit)
    source = open_cater(folder)
    assert len(source) == 2
    assert complaint in source.skipped[0]


def test_damaged_frames_are_found_when_decoding(folder):
    path = folder / "videos" / "CATER_new_000008.avi"
    raw = bytearray(path.read_bytes())
    middle = raw.index(b"\xff\xd8", len(raw) // 2)
    raw[middle + 300 : middle + 600] = bytes(300)
    path.unlink()
    path.write_bytes(raw)
    with pytest.raises(UserError, match="000008"):
        open_cater(folder).clips([1])
    source = open_cater(folder, check="decode")
    assert len(source) == 2
    assert "000008" in source.skipped[0]
    source.clips([0, 1])


def test_gzip_scenes(folder):
    path = folder / "scenes" / "CATER_new_000007.json"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_suffix(".json.gz").write_bytes(packed)
    assert len(open_cater(folder)) == 3
    path.with_suffix(".json.gz").write_bytes(packed[:-20])
    assert "cannot be read" in open_cater(folder).skipped[0]


@pytest.mark.parametrize("line", ["CATER_new_000007.avi", "CATER_new_000007.avi seven", "../../etc/passwd 3", "a b c"])
def test_lists_that_are_no_lists(folder, line):
    (folder / "lists" / "localize" / "val.txt").write_text(f"CATER_new_000008.avi 7\n\n{line}\n")
    with pytest.raises(UserError, match=r"val\.txt, line 3"):
        open_cater(folder)


def test_folders_that_cannot_be_used(tmp_path, published):
    with pytest.raises(UserError, match="no folder `videos`"):
        open_cater(tmp_path)
    (tmp_path / "videos").mkdir()
    with pytest.raises(UserError, match="no test video that can be used"):
        open_cater(tmp_path)
    with pytest.raises(UserError, match="has 40 frames, a clip 41"):
        open_cater(published, length=41)
    with pytest.raises(UserError, match="choose from 0 to 2"):
        open_cater(published).clips([3])


def test_a_background_picture_is_used(folder):
    import cv2

    picture = np.zeros((H, W, 3), np.uint8)
    picture[:, :16, 2] = 200  # OpenCV writes BGR
    cv2.imwrite(str(folder / "background.png"), picture)
    background = open_cater(folder).clips([0, 1]).background
    assert background.shape == (2, 1, 3, H, W)
    assert background[0, 0, :, 0, 0].tolist() == [200, 0, 0]


def test_what_the_world_writes_is_read_back(tmp_path):
    worlds = {"test": Cater(split="test", seed=3, size=(30, 40), length=45)}
    write_clips(CaterFolder(tmp_path, "test"), worlds, 1)
    source = open_cater(tmp_path, split="test")
    assert (len(source), source.size, source.length, source.skipped) == (1, (30, 40), 45, [])
    read, made = source.clips([0]), worlds["test"].clips([0])
    for name in ("visible", "whole", "state", "container", "events", "world", "position"):
        assert torch.equal(getattr(read, name), getattr(made, name)), name
    torch.testing.assert_close(read.share, made.share, atol=6e-5, rtol=0)
    assert (read.frames.float() - made.frames.float()).abs().mean() < 5  # MJPEG, colour at half the size
    for name, values in made.attributes.items():
        assert torch.equal(read.attributes[name], values), name
    assert OCCLUDED in read.state or VISIBLE in read.state
    half = open_cater(tmp_path, split="test", size=(15, 20)).clips([0])
    assert half.visible.shape[-2:] == (15, 20)
    torch.testing.assert_close(
        half.visible.float().mean((-2, -1)), made.visible.float().mean((-2, -1)), atol=0.02, rtol=0
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_scene_does_more_than_get_itself_skipped(folder, data):
    """Cut and flipped bytes: a scene is read as it is, or skipped with a reason."""
    path = folder / "scenes" / "CATER_new_000007.json"
    raw = bytearray(json.dumps(scene()).encode())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    source = open_cater(folder)
    assert len(source) + len(source.skipped) == 3
    source.clips(range(len(source)))
