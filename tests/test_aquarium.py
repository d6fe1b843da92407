"""The aquarium: nothing stands still but the rules; labels agree with pictures; clips do not hang on their batch."""

import dataclasses

import pytest
import torch

from loci import random
from loci.data.clip import OCCLUDED, VISIBLE
from loci.errors import UserError
from loci.worlds import aquarium_paint, aquarium_swim
from loci.worlds.aquarium import Aquarium
from loci.worlds.aquarium_species import SCHOOLING, SPECIES, looks
from loci.worlds.open import open_world

SMALL = {"size": (60, 80), "length": 6}


@pytest.fixture(scope="module")
def clip():
    return Aquarium(seed=1, **SMALL).clips([0, 5, 9])


@pytest.fixture(scope="module")
def minutes():
    """Half an hour of 20 tanks' fish, twice a second; no pictures."""
    fish = aquarium_swim.cast(random.key("fish", torch.arange(20)), 18, 4 / 3)
    poses = [aquarium_swim.swim(fish.at(torch.full((360,), n)), torch.arange(360) / 2) for n in range(20)]
    return fish, aquarium_swim.Pose(*(torch.stack(values) for values in zip(*poses, strict=True)))


def test_fish_stay_in_the_tank_and_turn(minutes):
    fish, pose = minutes
    x, y, z = pose.place.unbind(-1)
    assert (x.abs() + 0.8 * fish.length[:, None]).max() < 4 / 3 + 0.02
    assert y.max() <= aquarium_swim.TOP
    assert y.min() >= aquarium_swim.BOTTOM
    assert z.min() >= 0
    assert z.max() <= 1
    turns = (pose.facing[:, 1:] != pose.facing[:, :-1]).sum(1)
    assert turns.min() >= 2
    assert pose.shown.min() == pytest.approx(aquarium_swim.NARROWEST)
    assert pose.shown.max() <= 1
    # They swim ahead: where one moves sideways at all quickly, it looks the way it goes.
    moved = x.diff(dim=1)
    quick = moved.abs() > 0.08
    assert quick.sum() > 10_000
    assert (moved.sign() == pose.facing[:, :-1])[quick].double().mean() > 0.97
    assert moved.abs().max() < 0.5  # nobody jumps


def test_a_third_are_a_school(minutes):
    fish, pose = minutes
    members = list(aquarium_swim.school(18))
    others = [n for n in range(18) if n not in members]
    assert len(members) == 6
    assert (fish.species[:, members] == fish.species[:, members[:1]]).all()
    assert set(fish.species[:, members].flatten().tolist()) == set(SCHOOLING)
    assert set(fish.species[:, others].flatten().tolist()) == set(range(len(SPECIES))) - set(SCHOOLING)

    def spread(numbers):
        place = pose.place[:, :, numbers, :2]
        return (place - place.mean(2, keepdim=True)).norm(dim=-1).mean()

    assert spread(members) < 0.35 < spread(others)


def test_fish_are_ordered_from_the_back_to_the_front(minutes):
    fish, _ = minutes
    assert (fish.centre[:, 1:, 2] < fish.centre[:, :-1, 2]).all()
    size = fish.length / (1 + 0.55 * (fish.centre[..., 2] - 0.02).clamp_min(0))
    for n in range(18):
        assert size[:, n].max() <= aquarium_swim.longest(n, 18)


def test_no_part_of_a_fish_is_cut_off_by_its_patch(monkeypatch):
    source = Aquarium(seed=2, size=(96, 128), length=2, noise=0)
    usual = source.clips([0, 1, 2])
    monkeypatch.setattr(aquarium_paint, "REACH", 2.5)
    roomy = source.clips([0, 1, 2])
    assert torch.equal(usual.frames, roomy.frames)
    assert torch.equal(usual.whole, roomy.whole)


def test_labels_agree_with_each_other_and_with_the_picture(clip):
    assert clip.frames.shape == clip.background.shape == (3, 6, 3, 60, 80)
    assert clip.visible.shape == (3, 6, 18, 60, 80)
    assert not (clip.visible & ~clip.whole).any()
    assert (clip.visible.sum(2) <= 1).all()
    assert torch.equal(clip.share, clip.visible.sum((-2, -1)) / clip.whole.sum((-2, -1)).clamp_min(1))
    assert torch.equal(clip.state == OCCLUDED, clip.share < 0.05)
    assert torch.equal(clip.state == VISIBLE, clip.share >= 0.05)
    assert clip.whole.flatten(3).any(3).float().mean() > 0.97  # the slimmest are less than a pixel high here
    rows, columns = torch.arange(60) / 29.5 - 1, torch.arange(80) / 39.5 - 1
    area = clip.whole.sum((-2, -1))
    centre = torch.stack([(clip.whole.sum(-1) * rows).sum(-1), (clip.whole.sum(-2) * columns).sum(-1)], -1)
    off = (centre / area[..., None] - clip.position).abs()[area > 0] * torch.tensor([29.5, 39.5])
    assert off.max() < 4
    assert off.mean() < 1
    # In the frame, what is visible differs from the tank without fish; what is no fish does not, but for noise.
    change = (clip.frames.int() - clip.background.int()).abs().amax(2)
    assert change[clip.visible.any(2)].float().mean() > 20
    near = torch.nn.functional.max_pool2d(clip.whole.any(2).float(), 5, 1, 2) > 0
    assert change[~near].max() <= 8
    assert (~near).float().mean() > 0.5


def test_noise_is_as_strong_as_asked_and_differs_everywhere():
    source = Aquarium(seed=3, fish=1, noise=4.0, size=(60, 80), length=3)
    clip = source.clips([0])
    quiet = dataclasses.replace(source, noise=0).clips([0])
    noise = (clip.frames.int() - quiet.frames.int()).float()
    middling = (quiet.frames > 20) & (quiet.frames < 235)
    assert noise[middling].std().item() == pytest.approx(4.0, rel=0.05)
    assert abs(noise[middling].mean().item()) < 0.15
    for apart in (noise[0].flatten(1), noise[0, 0].flatten(1)):  # frames, colours
        assert torch.corrcoef(apart).fill_diagonal_(0).abs().max() < 0.06
    assert torch.equal(quiet.background, clip.background)
    outside = ~torch.nn.functional.max_pool2d(quiet.whole.any(2).float(), 5, 1, 2).bool()
    assert torch.equal(quiet.frames.permute(0, 1, 3, 4, 2)[outside], quiet.background.permute(0, 1, 3, 4, 2)[outside])


def test_the_background_moves_everywhere():
    """Water level, light, caustics on the sand and plants: compare the tank with itself seconds later."""
    clip = Aquarium(seed=4, fish=1, noise=0, size=(48, 64), length=200).clips([0], labels=False)
    tank = clip.background[0].float()
    swing = tank.amax(0) - tank.amin(0)
    assert (swing.amax(0) > 3).float().mean() > 0.95
    level = (tank.mean(1)[:, :12].diff(dim=1).abs().argmax(1)).float()
    assert level.amax() - level.amin() >= 1
    overall = tank.mean((1, 2, 3))
    assert overall.max() / overall.min() > 1.03
    steps = (tank[1:] - tank[:-1]).abs().mean((1, 2, 3))
    assert steps.min() > 0.2  # never quite still
    assert steps.max() < 12  # and never a cut


def test_plants_and_fish_hide_fish():
    source = Aquarium(seed=5, fish=16, size=(48, 64), length=1)
    clip = source.clips(range(40))
    others = clip.whole.sum(2, keepdim=True) - clip.whole.int() > 0
    behind_plants = clip.whole & ~clip.visible & ~others
    assert (behind_plants.sum((-2, -1)) > 0.3 * clip.whole.sum((-2, -1))).any(2).float().mean() > 0.5
    behind_fish = clip.whole & ~clip.visible & others
    assert (behind_fish.flatten(2).sum(2) > 10).float().mean() > 0.5
    # The foremost fish is hidden by nothing but the foremost plants, the hindmost by many.
    assert clip.share[:, 0, -1].mean() > clip.share[:, 0, :5].mean() > 0.4


def test_a_clip_does_not_depend_on_its_batch(clip, monkeypatch):
    source = Aquarium(seed=1, **SMALL)
    alone = source.clips([5])
    for field in dataclasses.fields(alone):
        one, other = getattr(alone, field.name), getattr(clip, field.name)
        if isinstance(one, torch.Tensor):
            assert torch.equal(one[0], other[1]), field.name
    assert torch.equal(alone.attributes["class"][0], clip.attributes["class"][1])
    monkeypatch.setattr("loci.worlds.aquarium._PIXELS_AT_ONCE", {"cpu": 2 * 60 * 80})
    bare = dataclasses.replace(source, length=5).clips([5], labels=False)
    assert torch.equal(bare.frames[0], clip.frames[1, :5])
    assert torch.equal(bare.background[0], clip.background[1, :5])
    assert bare.visible is None
    other = dataclasses.replace(source, split="test", length=1).clips([5], labels=False)
    assert not torch.equal(other.frames[0], clip.frames[1, :1])


def test_every_species_looks_like_itself():
    """All fields reach the painter in their order."""
    table = looks(torch.arange(len(SPECIES)))
    for n, kind in enumerate(SPECIES.values()):
        for name in kind._fields:
            value = getattr(table, name)[n]
            assert torch.allclose(value, torch.tensor(getattr(kind, name), dtype=torch.float32)), name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fish": 0}, "1 to 100"),
        ({"noise": -1}, "0 to 50"),
        ({"size": (200, 100)}, "0.75 and 4"),
        ({"size": (16, 32)}, "at least 24"),
        ({"split": "all"}, "train, val, test"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(UserError, match=words):
        open_world("aquarium", **options)
