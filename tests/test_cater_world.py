"""CATER's world: its stories keep the rules, its truth agrees with its pictures, its files with CATER's."""

import hashlib
import json
import math
import pathlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loci.data.cater_geometry import SNITCH_HEIGHT, project, screen_class, snitch_class
from loci.data.clip import ABSENT, CARRIED, CONTAINED, EVENTS, OCCLUDED, VISIBLE
from loci.errors import UserError
from loci.worlds.cater import Cater
from loci.worlds.cater_path import Path
from loci.worlds.cater_scene import carried, draw, from_json, holders, tilts, to_json
from loci.worlds.cater_script import GAP, LENGTH, Move, Script, Thing, write
from loci.worlds.render import render
from loci.worlds.scene import SHAPES

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def scripts():
    return [write(3, "train", n) for n in range(60)]


@pytest.fixture(scope="module")
def clip():
    return Cater(size=(30, 40), length=LENGTH, seed=1).clips([0, 4])


def test_cast(scripts):
    counts = [len(script.things) for script in scripts]
    assert set(counts) == {5, 6, 7, 8, 9, 10}
    for script in scripts:
        snitch, medium, large = script.things[:3]
        assert (snitch.shape, snitch.sized, snitch.material, snitch.colour) == ("spl", 0.3, "metal", "gold")
        assert (medium.shape, medium.size, large.shape, large.size) == ("cone", "medium", "cone", "large")
        assert all(thing.shape != "spl" and thing.colour != "gold" for thing in script.things[1:])
        assert len({thing.instance for thing in script.things}) == len(script.things)
        assert np.abs(script.places[..., :2]).max() <= 3


def test_nothing_comes_near_another_but_what_one_holds(scripts):
    for script in scripts:
        size = np.array([thing.sized for thing in script.things])
        apart = (
            np.linalg.norm(script.places[:, None] - script.places[None], axis=-1) - (size[:, None] + size)[..., None]
        )
        # A cone's way down onto what it will hold, and its way up again, count as holding.
        bound = np.broadcast_to(np.eye(len(size), dtype=bool)[..., None], apart.shape).copy()
        held = holders(script)
        for cone, moves in enumerate(script.moves):
            for move in moves:
                if move.kind == "_contain":
                    nested = {move.other}
                    while True:
                        more = {n for n in range(len(size)) if held[move.end, n] in nested} - nested
                        if not more:
                            break
                        nested |= more
                    leaving = [m for m in moves if m.kind == "_pick_place" and m.start >= move.end]
                    until = leaving[0].end if leaving else LENGTH
                    for n in nested:
                        bound[cone, n, move.start : until + 1] = bound[n, cone, move.start : until + 1] = True
        for n in range(len(size)):
            for frame in range(0, LENGTH, 10):
                outer = held[frame, n]
                while outer >= 0:
                    bound[n, outer, frame] = bound[outer, n, frame] = True
                    outer = held[frame, outer]
        assert apart[~bound].min() > GAP - 1e-9


def test_moves(scripts):
    kinds = set()
    for script in scripts:
        for n, moves in enumerate(script.moves):
            ends = [0, *(m.end for m in moves)]
            assert all(move.start >= end for move, end in zip(moves, ends, strict=False))
            rest = np.ones(LENGTH - 1, bool)
            for move in moves:
                kinds.add(move.kind)
                assert 20 <= move.end - move.start <= 30
                assert move.end <= LENGTH - 1
                rest[move.start : move.end] = False
                path = script.places[n, move.start : move.end + 1]
                lifted = path[:, 2].max() - path[0, 2]
                assert path[0, 2] == pytest.approx(path[-1, 2])
                if move.kind in ("_pick_place", "_contain"):
                    assert lifted == pytest.approx(2)
                else:
                    assert lifted == 0
                if move.kind in ("_rotate", "_no_op"):
                    assert np.ptp(path, 0).max() == 0
                if move.kind == "_slide":
                    steps = np.diff(path, axis=0)
                    np.testing.assert_allclose(steps, np.broadcast_to(steps[:1], steps.shape), atol=1e-12)
                if move.kind == "_rotate":
                    assert script.things[n].shape not in ("cone", "sphere")
                if move.kind == "_contain":
                    inner = script.things[move.other]
                    assert script.things[n].shape == "cone"
                    assert inner.shape in ("cone", "sphere", "spl")
                    assert inner.sized < script.things[n].sized
            assert np.abs(np.diff(script.places[n], axis=0))[rest].max(initial=0) == 0
    assert kinds == {"_slide", "_pick_place", "_rotate", "_contain", "_no_op"}


def test_contained_move_with_their_cone(scripts):
    nested = moving = 0
    for script in scripts:
        held = holders(script)
        for n in range(len(script.things)):
            inside = held[:, n] >= 0
            cones = script.places[held[inside, n], np.nonzero(inside)[0]]
            np.testing.assert_array_equal(script.places[n, inside][:, :2], cones[:, :2])
            nested += (held[inside, n][:, None] >= 0).any() and (holders(script)[inside, held[inside, n]] >= 0).sum()
        moving += carried(script, held).sum()
    assert nested > 0
    assert moving > 0


def test_holding_lasts_from_the_contain_to_the_next_lift():
    things = tuple(
        Thing(s, z, w, "metal", "red", 0.0, s) for s, z, w in (("spl", "small", 0.3), ("cone", "medium", 0.5))
    )
    moves = ((), (Move("_contain", 0, 3, 8), Move("_slide", None, 10, 14), Move("_pick_place", None, 17, 22)))
    held = holders(Script(things, np.zeros((2, 30, 3)), moves))
    assert np.nonzero(held[:, 0] == 1)[0].tolist() == list(range(8, 17))
    assert (held[:, 1] == -1).all()


def test_turns_add_up():
    thing = Thing("cube", "small", 0.25, "metal", "red", 1.0, "SmoothCube_v2_0")
    moves = ((Move("_rotate", None, 2, 6), Move("_rotate", None, 8, 12)),)
    turned = tilts(Script((thing,), np.zeros((1, 20, 3)), moves))[:, 0]
    assert turned[[0, 2, 4, 6, 7, 8, 12, 19]] == pytest.approx(np.array([0, 0, 0.5, 1, 1, 1, 2, 2]) * 1.57)


def test_clips_do_not_depend_on_company_split_or_length():
    world = Cater(size=(24, 32), length=6, seed=2)
    together, alone = world.clips([7, 5]), world.clips([5])
    assert torch.equal(together.frames[1], alone.frames[0])
    assert torch.equal(together.visible[1, :, : alone.visible.shape[2]], alone.visible[0])
    assert not torch.equal(together.frames[0], together.frames[1])
    assert torch.equal(world.clips([5], length=3, labels=False).frames, alone.frames[:, :3])
    for other in (Cater("val", 2, (24, 32), 6), Cater("train", 3, (24, 32), 6)):
        assert not torch.equal(other.clips([5], labels=False).frames, alone.frames)


def test_longer_stories_go_on():
    long = write(0, "test", 1, 420)
    short = write(0, "test", 1)
    assert long.places.shape[1] == 420
    first = [[m for m in moves if m.end < 250] for moves in long.moves]
    assert first == [[m for m in moves if m.end < 250] for moves in short.moves]
    assert max(m.end for moves in long.moves for m in moves) > 380


def test_clip_is_what_the_contract_says(clip):
    assert clip.frames.shape == (2, LENGTH, 3, 30, 40)
    assert clip.frames.dtype == torch.uint8
    assert clip.background.shape == (2, 1, 3, 30, 40)
    assert clip.index.tolist() == [0, 4]
    assert not (clip.visible & ~clip.whole).any()
    assert clip.visible.sum(2).max() == 1
    pixels = clip.visible.sum((-1, -2)) / clip.whole.sum((-1, -2)).clamp(min=1)
    torch.testing.assert_close(clip.share, pixels)
    absent = clip.attributes["shape"] == -1
    assert (clip.state == ABSENT).all(1).eq(absent).all()
    hidden = (clip.state == CONTAINED) | (clip.state == CARRIED)
    assert torch.equal(hidden, clip.container >= 0)
    assert hidden.any()
    assert not clip.visible[hidden].any()
    assert clip.whole[hidden].flatten(1).any(1).float().mean() > 0.8
    assert (clip.share[clip.state == VISIBLE] >= 0.05).all()
    assert (clip.share[clip.state == OCCLUDED] < 0.05).all()


def test_what_a_cone_sets_free_is_still_under_it_at_first(clip):
    """When a cone begins to lift off it still stands where it stood: what was inside is drawn, but unseen."""
    released = (clip.container[:, :-1] >= 0) & (clip.container[:, 1:] < 0)
    assert released.any()
    assert not clip.visible[:, 1:][released].any()
    assert (clip.state[:, 1:][released] == OCCLUDED).all()


def test_snitch_class_is_that_of_its_place_on_screen(clip):
    classes = clip.attributes["snitch_class"]
    assert (classes[:, 1:] == -1).all()
    assert torch.equal(classes[:, 0], snitch_class(clip.world[:, -1, 0]))
    resting = clip.world[..., 0, 2] < SNITCH_HEIGHT + 1e-3
    place = clip.position[:, :, 0]
    assert torch.equal(screen_class(place)[resting], snitch_class(clip.world[:, :, 0])[resting])


def test_a_snitch_s_class_can_be_read_off_the_screen_in_every_frame(scripts):
    right = total = 0
    for script in scripts:
        world = torch.from_numpy(script.places[0]).float()
        resting = world[:, 2] < SNITCH_HEIGHT + 1e-3
        back = screen_class(project(world[resting]))
        right += (back == snitch_class(world[resting])).sum().item()
        total += len(back)
    assert total > 0.7 * len(scripts) * LENGTH
    assert right > 0.999 * total


def test_a_script_is_the_same_on_every_machine():
    """Sums, products and roots of float64 are rounded alike everywhere; so one digest holds for all machines."""
    digest = hashlib.sha256()
    for split, index, length in (("train", 0, LENGTH), ("test", 7, LENGTH), ("val", 3, 450)):
        script = write(11, split, index, length)
        digest.update(repr((script.things, script.moves)).encode())
        digest.update(script.places.tobytes())
    assert digest.hexdigest() == "5342002ab251425d589e2b0105c77caed9bed07938cf5f41f50ceeeb9e8f3d22"


@settings(deadline=None, max_examples=200)
@given(*[st.floats(-3, 3)] * 5, st.booleans(), st.integers(21, 31))
def test_a_way_ends_where_it_says(x, y, z, to_x, to_y, lifted, frames):
    way = Path((x, y, z), to_x, to_y, lifted, frames)
    track = way.track()
    assert track.shape == (3, frames)
    assert tuple(track[:, 0]) == (x, y, z)
    assert tuple(track[:, -1]) == way.end
    assert way.end == pytest.approx((to_x, to_y, z), abs=1e-9)
    assert np.ptp(track[2]) == pytest.approx(2 if lifted else 0)


def test_masks_lie_where_the_positions_say(clip):
    """Where the frame does not cut a round thing, its whole mask has its middle within a pixel of the centre."""
    height, width = clip.frames.shape[-2:]
    cut = clip.whole[..., 0, :].any(-1) | clip.whole[..., -1, :].any(-1)
    cut |= clip.whole[..., 0].any(-1) | clip.whole[..., -1].any(-1)
    shape = clip.attributes["shape"]
    round_ = (shape == SHAPES.index("sphere")) | (shape == SHAPES.index("spl"))
    ok = ~cut & clip.whole.flatten(3).any(-1) & round_[:, None]
    assert ok.sum() > 500
    masks = clip.whole.float()
    area = masks.sum((-1, -2)).clamp(min=1)
    row = (masks.sum(-1) * torch.arange(height)).sum(-1) / area
    column = (masks.sum(-2) * torch.arange(width)).sum(-1) / area
    wanted = (clip.position + 1) / 2 * torch.tensor([height, width]) - 0.5
    assert ((row - wanted[..., 0]).abs()[ok] < 1).all()
    assert ((column - wanted[..., 1]).abs()[ok] < 1).all()


def test_events_are_the_moves(clip):
    script = write(1, "train", 0)
    rows = clip.events[0][clip.events[0, :, 0] >= 0]
    assert len(rows) == sum(map(len, script.moves))
    assert (rows[1:, 1] >= rows[:-1, 1]).all()
    moves = sorted((m.start, m.end, n, -1 if m.other is None else m.other, m.kind)
                   for n, ms in enumerate(script.moves) for m in ms)  # fmt: skip
    assert moves == sorted((s, e, n, o, "_" + EVENTS[k]) for k, s, e, n, o in rows.tolist())


def test_without_labels_the_pictures_are_the_same():
    world = Cater(size=(24, 32), length=150, seed=4)
    bare, full = world.clips([3], labels=False), world.clips([3])
    assert torch.equal(bare.frames, full.frames)
    assert bare.visible is None
    assert bare.state is None
    assert torch.equal(bare.background, full.background)


def test_jitter_moves_the_lamps_of_each_clip():
    world = Cater(size=(24, 32), length=1, jitter=True)
    moved = world.clips([0, 1], labels=False).background
    still = Cater(size=(24, 32), length=1).clips([0, 1], labels=False).background
    assert torch.equal(still[0], still[1])
    assert not torch.equal(moved[0], moved[1])
    assert (moved.float() - still.float()).abs().mean() < 40


def test_scene_files_have_caters_fields_and_come_back():
    recorded = json.loads((GOLDEN / "cater_scene.json").read_text())
    world = Cater("test", 1, (120, 160))
    scene = json.loads(json.dumps(world.scenes([9])[0]))
    assert set(scene) == set(recorded)
    assert set(scene["objects"][0]) == set(recorded["objects"][0])
    assert scene["image_filename"] == "CATER_new_000009.avi"
    script = world.scripts([9])[0]
    back = from_json(scene)
    assert back.things == script.things
    assert back.moves == script.moves
    np.testing.assert_array_equal(back.places, script.places)
    behind = script.places[:, 0] @ np.array(scene["directions"]["behind"])
    for n, others in enumerate(scene["relationships"]["behind"]):
        assert others == [o for o in range(len(behind)) if o != n and behind[o] - behind[n] > 0.2]
    # The recorded file's own derived fields come out of its script again.
    again = to_json(from_json(recorded), recorded["image_index"], (120, 160))
    assert again["movements"] == recorded["movements"]
    for ours, theirs in zip(again["objects"], recorded["objects"], strict=True):
        assert np.abs(np.array(ours["pixel_coords"]) - np.array(theirs["pixel_coords"])).max() <= 1
        assert math.isclose(ours["pixel_coords"][2], theirs["pixel_coords"][2], abs_tol=1e-2)


def test_a_recorded_scene_is_drawn_as_it_was_filmed():
    """Frames of cater_look (see docs/worlds.md) from their JSON: the picture and the masks."""
    recorded = json.loads((GOLDEN / "cater_scene.json").read_text())
    filmed = np.load(GOLDEN / "cater_look.npz")
    script = from_json(recorded)
    drawn = render(draw([script]).during(slice(None, None, 75)), (120, 160))
    frames, ids = torch.from_numpy(filmed["frames"]).permute(0, 3, 1, 2), torch.from_numpy(filmed["ids"])
    floor = torch.from_numpy(filmed["background"]).permute(2, 0, 1)
    assert (drawn.background[0, 0].float() - floor.float()).abs().mean() / 255 < 0.01
    assert (drawn.frames[0].float() - frames.float()).abs().mean() / 255 < 0.02
    for frame in range(len(ids)):
        for n in range(len(script.things)):
            theirs, ours = ids[frame] == n + 1, drawn.visible[0, frame, n]
            if theirs.sum() > 60:
                assert (ours & theirs).sum() / (ours | theirs).sum() > 0.75


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"split": "dev"}, "train"), ({"size": (0, 9)}, "size"), ({"length": 0}, "length")],
)
def test_mistakes_are_named(wrong, word):
    with pytest.raises(UserError, match=word):
        Cater(**wrong)


def test_a_scene_without_locations_is_refused():
    with pytest.raises(UserError, match="locations"):
        from_json({"objects": [{"shape": "cube", "size": "small", "sized": 0.25, "material": "metal", "color": "red",
                                "rotation": 0, "instance": "x"}], "movements": {}})  # fmt: skip
