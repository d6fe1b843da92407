import contextlib
import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco

from loci.data.clevrer import open_clevrer
from loci.data.clip import ABSENT, EVENTS, OCCLUDED, VISIBLE
from loci.data.write import write_clips
from loci.data.write_clevrer import ClevrerFolder
from loci.data.write_video import write_video
from loci.errors import UserError
from loci.worlds.clevrer import Clevrer

FRAMES, H, W = 8, 32, 48
LOOKS = (
    {"color": "red", "material": "metal", "shape": "cube"},
    {"color": "cyan", "material": "rubber", "shape": "sphere"},
)


def annotation():
    """The second object enters in frame 3; they meet in frame 5."""
    return {
        "object_property": [{"object_id": 5 + n, **look} for n, look in enumerate(LOOKS)],
        "motion_trajectory": [
            {
                "frame_id": t,
                "objects": [
                    {"object_id": 5, "location": [0.0, 0.5 * t, 0.2], "inside_camera_view": True},
                    {"object_id": 6, "location": [1.0, 1.0, 0.2], "inside_camera_view": t >= 3},
                ],
            }
            for t in range(FRAMES)
        ],
        "collision": [{"frame_id": 5, "object_ids": [6, 5], "location": [1, 1, 0]}],
    }  # fmt: skip


def box(top, left, height=6, width=8):
    mask = np.zeros((H, W), np.uint8)
    mask[top : top + height, left : left + width] = 1
    return mask


def encoded(mask):
    code = coco.encode(np.asfortranarray(mask))
    return {"size": [H, W], "counts": code["counts"].decode()}


def proposals():
    """The first object is seen throughout, the second in frames 3, 4, 6 and 7; and a detection of nothing."""
    frames = []
    for t in range(FRAMES):
        objects = [
            {**LOOKS[0], "mask": encoded(box(2, 2 * t))},
            {**LOOKS[0], "color": "gray", "mask": encoded(box(20, 30))},
        ]
        if t >= 3 and t != 5:
            objects.append({**LOOKS[1], "mask": encoded(box(4, 10))})
        frames.append({"frame_index": t, "objects": objects})
    return {"video_index": 0, "frames": frames}


def add(root, number, annotated=True, proposed=True):
    folder = f"{number // 1000 * 1000:05d}-{number // 1000 * 1000 + 1000:05d}"
    frames = torch.full((FRAMES, 3, H, W), number % 200, dtype=torch.uint8)
    write_video(root / f"video_{folder}" / f"video_{number:05d}.mp4", frames, 25)
    for kind, content in (("annotation", annotation()), ("proposal", proposals())):
        if annotated if kind == "annotation" else proposed:
            place = root / (f"annotation_{folder}" if kind == "annotation" else "derender_proposals")
            place.mkdir(exist_ok=True)
            (place / f"{kind}_{number:05d}.json").write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    for number in (7, 1009, 10100):
        add(tmp_path, number)
    add(tmp_path, 15003, annotated=False, proposed=False)
    return tmp_path


def test_splits_by_number(folder):
    assert [len(open_clevrer(folder, split=split)) for split in ("train", "val", "test")] == [2, 1, 1]
    source = open_clevrer(folder, split="train")
    assert (source.size, source.length) == ((H, W), FRAMES)
    means = source.clips([1, 0], labels=False).frames.float().mean((1, 2, 3, 4))
    assert means.tolist() == pytest.approx([9, 7], abs=2)


def test_the_test_split_has_no_annotations(folder):
    clip = open_clevrer(folder, split="test").clips([0])
    assert (clip.state, clip.visible, dict(clip.attributes)) == (None, None, {})


def test_what_the_annotation_says(folder):
    source = open_clevrer(folder, split="val")
    clip = source.clips([0])
    assert clip.world[0, 4].tolist() == [[0, 2, pytest.approx(0.2)], [1, 1, pytest.approx(0.2)]]
    words = {name: [source.names[name][v] for v in values[0]] for name, values in clip.attributes.items()}
    assert words == {"shape": ["cube", "sphere"], "material": ["metal", "rubber"], "colour": ["red", "cyan"]}
    events = [[EVENTS[kind], *rest] for kind, *rest in clip.events[0].tolist()]
    assert events == [["enter", 3, 3, 1, -1], ["collision", 5, 5, 1, 0]]
    assert clip.state[0, :, 0].tolist() == [VISIBLE] * FRAMES
    assert clip.state[0, :, 1].tolist() == [ABSENT] * 3 + [VISIBLE] * 2 + [OCCLUDED] + [VISIBLE] * 2


def test_masks_are_told_apart_by_looks_and_never_overlap(folder):
    visible = open_clevrer(folder, split="val").clips([0]).visible[0].numpy()
    for t in range(FRAMES):
        first = box(2, 2 * t).astype(bool)
        assert (visible[t, 0] == first).all()
        second = box(4, 10).astype(bool) & ~first if t in (3, 4, 6, 7) else np.zeros((H, W), bool)
        assert (visible[t, 1] == second).all()


def test_positions_are_the_masks_centres_where_the_camera_does_not_fit(folder):
    position = open_clevrer(folder, split="val").clips([0]).position[0]
    assert position[0, 0].tolist() == pytest.approx([2 * 4.5 / (H - 1) - 1, 2 * 3.5 / (W - 1) - 1])
    assert position[5, 1].isnan().all()


def test_without_proposals_there_are_no_masks(folder):
    (folder / "derender_proposals" / "proposal_01009.json").unlink()
    clip = open_clevrer(folder, split="train").clips([0, 1])
    assert clip.visible is None
    assert clip.state[:, :, 1].tolist() == [[ABSENT] * 3 + [VISIBLE] * 5] * 2


def test_what_cannot_be_used_is_skipped_and_reported(folder):
    add(folder, 10800)
    add(folder, 10801, annotated=False)
    add(folder, 10802)
    path = folder / "video_10000-11000" / "video_10802.mp4"
    path.write_bytes(path.read_bytes()[:-200])
    source = open_clevrer(folder, split="val")
    assert len(source) == 1
    assert len(source.skipped) == 3
    for number, reason in ((10800, "known to be broken"), (10801, "no annotation"), (10802, "")):
        assert any(str(number) in line and reason in line for line in source.skipped)


@pytest.mark.parametrize(
    ("kind", "edit", "complaint"),
    [
        ("annotation", lambda a: a["motion_trajectory"].pop(), "motion of 8 frames"),
        ("annotation", lambda a: a.pop("collision"), "collision"),
        ("annotation", lambda a: a["object_property"][0].update(color="pink"), "one of gray, red"),
        ("annotation", lambda a: a["object_property"][0].update(object_id=6), "a number each"),
        ("annotation", lambda a: a["motion_trajectory"][2]["objects"][0].update(location=[1, 2]), "shape"),
        ("annotation", lambda a: a["motion_trajectory"][2]["objects"][0].update(object_id=9), "no key 9"),
        ("proposal", lambda p: p["frames"][0]["objects"][0]["mask"].update(size=[W, H]), "mask of 32x48"),
        ("proposal", lambda p: p["frames"][0]["objects"][0]["mask"].update(counts="0"), "add up"),
        ("proposal", lambda p: p["frames"][0]["objects"][0]["mask"].update(counts=[3, -3, H * W]), "add up"),
    ],
)
def test_labels_that_are_wrong_name_their_file(folder, kind, edit, complaint):
    path = next(folder.rglob(f"{kind}_10100.json"))
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=complaint) as caught:
        open_clevrer(folder, split="val").clips([0])
    assert path.name in str(caught.value)
    add(folder, 10200)
    source = open_clevrer(folder, split="val", check="decode")
    assert [files.video.name for files in source.files] == ["video_10200.mp4"]
    assert len(source.skipped) == 1


def test_folders_that_cannot_be_used(tmp_path, folder):
    with pytest.raises(UserError, match="is no folder"):
        open_clevrer(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no val video \(numbers 10000 to 14999\)"):
        open_clevrer(next(folder.glob("video_15*")), split="val")


def test_what_the_world_writes_is_read_back(tmp_path):
    world = Clevrer(split="val", seed=2, size=(24, 36), length=16)
    write_clips(ClevrerFolder(tmp_path, "val"), {"val": world}, 1)
    read, made = open_clevrer(tmp_path, split="val").clips([0]), world.clips([0])
    count = read.state.shape[2]
    assert torch.equal(read.visible, made.visible[:, :, :count])
    told = read.state[0] != ABSENT
    torch.testing.assert_close(read.position[0][told], made.position[0, :, :count][told], atol=1e-4, rtol=0)
    torch.testing.assert_close(read.world[0][told], made.world[0, :, :count][told])
    meetings = [clip.events[0][clip.events[0, :, 0] == EVENTS.index("collision")].tolist() for clip in (read, made)]
    assert meetings[0] == meetings[1]
    for name, values in read.attributes.items():
        assert torch.equal(values, made.attributes[name][:, :count])
    seen = made.share[0, :, :count] >= 0.05
    assert (read.state[0][seen & told] == VISIBLE).all()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_labels_are_read_or_refused(folder, data):
    sound = {"annotation": annotation(), "proposal": proposals()}
    chosen = data.draw(st.sampled_from(sorted(sound)))
    for kind, content in sound.items():
        raw = bytearray(json.dumps(content).encode())
        if kind == chosen and data.draw(st.booleans()):
            raw = raw[: data.draw(st.integers(0, len(raw)))]
        for _ in range(data.draw(st.integers(0, 4)) if kind == chosen and raw else 0):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        next(folder.rglob(f"{kind}_10100.json")).write_bytes(raw)
    source = open_clevrer(folder, split="val")
    with contextlib.suppress(UserError):
        source.clips([0])
