"""CLEVRER: the script keeps its rules over many seeds, labels agree with each other and with the annotations."""

import dataclasses

import pytest
import torch

from loci import random
from loci.data.clip import ABSENT, EVENTS, OCCLUDED, VISIBLE
from loci.errors import UserError
from loci.worlds import clevrer_script as script
from loci.worlds.clevrer import Clevrer, _events
from loci.worlds.open import open_world
from loci.worlds.physics_contacts import pairs

COLLISION, ENTER, LEAVE = (EVENTS.index(name) for name in ("collision", "enter", "leave"))


@pytest.fixture(scope="module")
def played():
    cast, matter, motion = script.play(random.key("clevrer", 3, "train", torch.arange(60)), 128)
    return cast, matter, motion, _events(cast, motion)


@pytest.fixture(scope="module")
def clip():
    source = Clevrer(seed=3, size=(40, 60), length=60)
    return source, source.clips([0, 1, 2])


def test_the_cast_keeps_the_rules(played):
    cast, *_ = played
    count = (cast.shape >= 0).sum(1)
    assert set(count.tolist()) == {3, 4, 5, 6}
    for b in range(60):
        looks = [(s, m, c) for s, m, c in zip(cast.shape[b].tolist(), cast.material[b].tolist(),
                                              cast.colour[b].tolist(), strict=True) if s >= 0]  # fmt: skip
        assert len(set(looks)) == len(looks) == count[b]
        assert 1 <= cast.rests[b].sum() < count[b]
    for values, names in (
        (cast.shape, script.SHAPES),
        (cast.material, script.MATERIALS),
        (cast.colour, script.COLOURS),
    ):
        assert set(values.flatten().tolist()) == set(range(-1, len(names)))


def test_bodies_enter_from_out_of_sight_and_rest_apart(played):
    cast, _, motion, _ = played
    there = cast.shape >= 0
    start = motion.bodies.position[:, 0]
    assert script.out_of_sight(start)[there & ~cast.rests].all()
    keys = random.key("clevrer", 9, "test", torch.arange(1000))
    many = script._cast(keys)
    assert script.out_of_sight(script._starts(keys, many)[0])[(many.shape >= 0) & ~many.rests].all()
    assert not script.out_of_sight(start)[cast.rests].any()
    assert not motion.there[:, 0][there & ~cast.rests & (cast.enter > 0)].any()
    first, second = pairs(script.MOST, torch.device("cpu"))
    gap = (start[:, first] - start[:, second]).norm(dim=-1)
    both = cast.rests[:, first] & cast.rests[:, second]
    assert (gap[both] >= 3.2 * script.SIZE - 1e-9).float().mean() > 0.95
    assert gap[both].min() > 2**0.5 * 2 * script.SIZE  # no two squares overlap, whatever way they are turned


def test_something_happens(played):
    cast, _, motion, events = played
    collisions = (events[..., 0] == COLLISION).sum(1).double()
    assert 1.5 < collisions.mean() < 8
    assert (collisions >= 1).double().mean() > 0.8
    assert (events[..., 0] == LEAVE).any(1).double().mean() > 0.15
    entered = (events[..., 0] == ENTER).sum(1)
    assert (entered <= ((cast.shape >= 0) & ~cast.rests).sum(1)).all()
    assert entered.double().mean() > 1.5
    assert motion.bodies.position.isfinite().all()


def test_collisions_are_told_when_velocities_change(played):
    """Between frames, nobody's velocity turns unless a collision of theirs is told; and those told are in touch."""
    _, _, motion, events = played
    velocity = motion.bodies.velocity
    reach = 2 * 2**0.5 * script.SIZE + 0.3
    for b in range(60):
        for _, frame, _, one, two in events[b][events[b][:, 0] == COLLISION].tolist():
            apart = (motion.bodies.position[b, frame, one] - motion.bodies.position[b, frame, two]).norm()
            assert apart < reach
            assert motion.there[b, frame - 1, one]
            assert motion.there[b, frame - 1, two]
            assert (velocity[b, frame, one] != velocity[b, frame - 1, one]).any()
    turned = (velocity.diff(dim=1).norm(dim=-1) > 0.1)  # friction alone takes 0.024 a frame  # fmt: skip
    first, second = pairs(script.MOST, torch.device("cpu"))
    hit = torch.zeros(60, 128, script.MOST, dtype=torch.bool)
    for p, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        hit[:, :, i] |= motion.hit[:, :, p]
        hit[:, :, j] |= motion.hit[:, :, p]
    assert turned.sum() > 100
    assert not (turned & ~hit[:, 1:]).any()


def test_momentum_is_kept_in_every_collision(played):
    """What the bodies of a touching group lose, friction aside, is less than friction can take."""
    _, matter, motion, _ = played
    total = (matter.mass[:, None, :, None] * motion.bodies.velocity * motion.there[..., None]).sum(2)
    same = (motion.there[:, 1:] == motion.there[:, :-1]).all(2)
    most = (matter.friction * matter.mass).sum(1) * 9.81 / script.RATE
    change = total.diff(dim=1).norm(dim=-1)
    assert same.double().mean() > 0.9
    assert (change <= most[:, None] + 1e-9)[same].all()
    kinetic = (matter.mass[:, None] * motion.bodies.velocity.square().sum(-1)
               + matter.inertia[:, None] * motion.bodies.spin ** 2)  # fmt: skip
    assert ((kinetic * motion.there).sum(2).diff(dim=1) < 1e-12)[same].all()


def test_labels_agree_with_each_other(clip):
    source, it = clip
    assert it.frames.shape == (3, 60, 3, 40, 60)
    assert not (it.visible & ~it.whole).any()
    assert (it.visible.sum(2) <= 1).all()
    there = it.state != ABSENT
    assert not it.whole[~there].any()
    assert torch.equal(it.share, it.visible.sum((-2, -1)) / it.whole.sum((-2, -1)).clamp_min(1))
    assert torch.equal(there & (it.share < 0.05), it.state == OCCLUDED)
    assert (it.container == -1).all()
    # A position lies in the middle of the whole mask, where all of that is in the frame.
    inner = it.whole.clone()
    inner[..., 1:-1, 1:-1] = False
    inside = (it.whole.flatten(-2).sum(-1) > 20) & ~inner.flatten(-2).any(-1)
    assert inside.sum() > 100
    rows, columns = torch.arange(40) / 19.5 - 1, torch.arange(60) / 29.5 - 1
    area = it.whole.sum((-2, -1)).clamp_min(1)
    centre = torch.stack([(it.whole.sum(-1) * rows).sum(-1) / area, (it.whole.sum(-2) * columns).sum(-1) / area], -1)
    off = (centre - it.position).abs()[inside] * torch.tensor([19.5, 29.5])
    assert off.max() < 1.0
    # Where no body is, and far from shadows, the frame is the background.
    free = ~it.whole.any(2)[:, :, :6]
    difference = (it.frames.int() - it.background.int()).abs().amax(2)[:, :, :6]
    assert difference[free].float().mean() < 4
    assert it.frames.float().std() > 5
    assert source.names["shape"] == ("cube", "sphere", "cylinder")


def test_annotations_tell_the_same_story(clip):
    source, it = clip
    for b, annotation in enumerate(source.annotations([0, 1, 2])):
        known = {n: it.attributes["shape"][b, n] for n in range(6) if it.attributes["shape"][b, n] >= 0}
        assert [thing["object_id"] for thing in annotation["object_property"]] == list(known)
        for thing in annotation["object_property"]:
            assert thing["shape"] == script.SHAPES[known[thing["object_id"]]]
            assert thing["color"] == script.COLOURS[it.attributes["colour"][b, thing["object_id"]]]
        assert [frame["frame_id"] for frame in annotation["motion_trajectory"]] == list(range(60))
        for frame in annotation["motion_trajectory"]:
            for thing in frame["objects"]:
                t, n = frame["frame_id"], thing["object_id"]
                assert thing["location"] == pytest.approx(it.world[b, t, n].tolist())
                if it.state[b, t, n] == VISIBLE:
                    assert thing["inside_camera_view"]
                if not thing["inside_camera_view"]:
                    assert not it.whole[b, t, n].any()
        told = [row for row in it.events[b].tolist() if row[0] == COLLISION]
        assert [(c["frame_id"], c["object_ids"]) for c in annotation["collision"]] == [(r[1], r[3:]) for r in told]


def test_a_clip_does_not_depend_on_its_batch(clip):
    source, it = clip
    short = dataclasses.replace(source, length=12)
    alone = short.clips([1])
    assert torch.equal(alone.frames[0], it.frames[1, :12])
    assert torch.equal(alone.world[0], it.world[1, :12])
    assert torch.equal(alone.visible[0], it.visible[1, :12])
    bare = short.clips([1], labels=False)
    assert torch.equal(bare.frames, alone.frames)
    assert bare.visible is None
    other = dataclasses.replace(short, split="val", length=1)
    assert not torch.equal(other.clips([1]).frames[0], alone.frames[0, :1])


def test_mistakes_are_named():
    with pytest.raises(UserError, match="train, val, test"):
        open_world("clevrer", split="dev")
    with pytest.raises(UserError, match="at least 16"):
        open_world("clevrer", size=(8, 60))
    with pytest.raises(UserError, match="at least 1 frame"):
        open_world("clevrer", length=0)
