"""Moving MNIST against a slow simulator that bounces one digit at a time, and the rules of its splits and labels."""

import dataclasses
import gzip

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loci.data.clip import OCCLUDED, STATES, VISIBLE
from loci.errors import UserError
from loci.worlds import mnist
from loci.worlds.moving_mnist import MovingMnist, clamped, triangle
from loci.worlds.open import open_world

CPU = torch.device("cpu")


def bounce(start, speed, room, steps):
    """Step by step: whatever would pass a wall comes back by as much, as often as needed."""
    place, places = start, [start]
    for _ in range(steps - 1):
        place += speed
        while not 0 <= place <= room:
            place = -place if place < 0 else 2 * room - place
            speed = -speed
        places.append(place)
    return places


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_closed_form_is_exact_reflection(data):
    room = data.draw(st.integers(1, 60))
    start = data.draw(st.integers(0, room))
    speed = data.draw(st.integers(1, 4)) * data.draw(st.sampled_from([-1, 1]))
    closed = triangle(*(torch.tensor(v) for v in (start, speed, room)), torch.arange(200))
    assert closed.tolist() == bounce(start, speed, room, 200)


def test_no_room_means_no_motion():
    assert triangle(torch.tensor(0), torch.tensor(3), torch.tensor(0), torch.arange(9)).tolist() == [0] * 9


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 1), st.floats(-0.1, 0.1).filter(lambda v: abs(v) > 1e-6))
def test_common_protocol_stops_at_the_wall(start, speed):
    place, pace, places = start, speed, []
    for _ in range(100):
        places.append(place)
        place += pace
        if place <= 0 or place >= 1:
            place, pace = min(max(place, 0), 1), -pace
    closed = clamped(torch.tensor(start, dtype=torch.float64), torch.tensor(speed, dtype=torch.float64),
                     torch.arange(100))  # fmt: skip
    # Where a step ends within rounding of a wall, rounding decides whether another step follows.
    assume(all(abs(p - wall) > 1e-9 for p in places for wall in (0, 1) if p != wall))
    assert (closed - torch.tensor(places, dtype=torch.float64)).abs().max() <= 1e-9


def test_frames_equal_an_independent_simulation():
    source = MovingMnist(split="test", seed=5, size=(48, 80), length=40)
    clip = source.clips(range(12))
    digits = mnist.digits("test", True, CPU)
    known = {shape(image >= 128): n for n, image in enumerate(digits.images)}
    for b in range(12):
        tracks = []
        for n in range(2):
            corner = ((clip.position[b, :, n] + 1) / 2 * torch.tensor([47, 79])).double()
            number = known[shape(clip.whole[b, 0, n])]
            height, width = digits.extent[number].tolist()
            corner = (corner - (torch.tensor([height, width]) - 1) / 2).round().long()
            for axis, room in ((0, 48 - height), (1, 80 - width)):
                places = corner[:, axis].tolist()
                speed = places[1] - places[0]
                assert any(bounce(places[0], s, room, 40) == places for s in (-4, -3, -2, -1, 1, 2, 3, 4)), speed
            tracks.append((number, corner))
        for t in range(40):
            canvas = torch.zeros(48, 80, dtype=torch.int64)
            for number, corner in tracks:
                top, left = digits.corner[number].tolist()
                height, width = digits.extent[number].tolist()
                row, column = corner[t].tolist()
                ink = digits.images[number, top : top + height, left : left + width]
                canvas[row : row + height, column : column + width] += ink
            assert torch.equal(clip.frames[b, t], canvas.clamp(0, 255).byte().expand(3, -1, -1))


def shape(mask):
    """A mask cut to what is set, as bytes."""
    rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
    cut = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return bytes(cut.shape) + cut.numpy().tobytes()


def test_digits_stay_inside_and_classes_differ():
    clip = MovingMnist(seed=1, length=60, digits=3).clips(range(20))
    assert clip.position.abs().max() <= 1
    classes = clip.attributes["class"]
    assert all(len(set(row)) == 3 for row in classes.tolist())
    assert set(classes.flatten().tolist()) == set(range(10))
    # A digit's pixels are the same number in every frame: none ever leaves.
    area = clip.whole.sum((-2, -1))
    assert (area == area[:, :1]).all()
    assert area.min() > 0
    reached = clip.whole.any(2)
    assert reached[..., 0, :].any()
    assert reached[..., -1, :].any()
    assert reached[..., 0].any()
    assert reached[..., -1].any()


def test_beyond_ten_digits_classes_come_round_again():
    clip = MovingMnist(seed=1, length=2, digits=23).clips(range(5))
    classes = clip.attributes["class"]
    assert all(sorted(row[n : n + 10]) == list(range(10)) for row in classes.tolist() for n in (0, 10))
    assert not torch.equal(classes[:, :10], classes[:, 10:20])
    assert all(len(set(row[20:])) == 3 for row in classes.tolist())
    few = MovingMnist(seed=1, length=2, digits=10).clips(range(5))
    assert torch.equal(few.attributes["class"], classes[:, :10])


def test_speeds_are_one_to_four_either_way():
    clip = MovingMnist(seed=2, size=(128, 128), length=3).clips(range(300))
    steps = (clip.position.diff(dim=1) / 2 * 127).round().long()
    moved = steps.gather(1, steps.abs().argmax(1, keepdim=True)).flatten()  # the other may hold a reflection
    assert set(moved.abs().tolist()) == {1, 2, 3, 4}
    assert 0.4 < (moved > 0).double().mean() < 0.6
    assert (moved.abs().bincount() > 200)[1:].all()


def test_labels_say_which_digit_shows():
    clip = MovingMnist(seed=3, length=30).clips(range(20))
    assert not (clip.visible & ~clip.whole).any()
    assert (clip.visible.sum(2) <= 1).all()
    assert torch.equal(clip.visible.any(2), clip.whole.any(2))  # nothing is hidden by anything but a digit
    assert (clip.frames[:, :, 0][clip.whole.any(2)] >= 128).all()
    assert torch.equal(clip.share, clip.visible.sum((-2, -1)) / clip.whole.sum((-2, -1)))
    assert torch.equal(clip.state == OCCLUDED, clip.share < 0.05)
    assert set(clip.state.unique().tolist()) <= {VISIBLE, OCCLUDED}
    assert (clip.container == -1).all()
    assert STATES[VISIBLE] == "visible"


@pytest.mark.parametrize("protocol", ["ink", "box"])
def test_a_clip_does_not_depend_on_its_batch(protocol):
    source = MovingMnist(seed=4, length=7, size=(40, 50), protocol=protocol)
    together = source.clips([3, 99, 7])
    alone = source.clips([99])
    for field in dataclasses.fields(together):
        one, other = getattr(alone, field.name), getattr(together, field.name)
        if field.name == "attributes":
            assert torch.equal(one["class"][0], other["class"][1])
        elif one is not None:
            assert torch.equal(one[0], other[1]), field.name
    bare = source.clips([99], labels=False)
    assert torch.equal(bare.frames, alone.frames)
    assert bare.visible is None
    assert torch.equal(bare.background, torch.zeros(1, 1, 3, 40, 50, dtype=torch.uint8))
    longer = dataclasses.replace(source, length=11).clips([99], labels=False)
    assert torch.equal(longer.frames[:, :7], alone.frames)


def test_box_protocol_moves_whole_boxes_of_any_class():
    clip = MovingMnist(seed=6, protocol="box", length=80).clips(range(60))
    corner = (clip.position.double() + 1) / 2 * 63 - 13.5
    assert (corner - corner.round()).abs().max() < 1e-5
    corner = corner.round()
    assert corner.min() == 0
    assert corner.max() == 36
    same = clip.attributes["class"][:, 0] == clip.attributes["class"][:, 1]
    assert same.any()
    steps = corner.diff(dim=1).norm(dim=-1)
    assert steps.max() <= 3.6 + 2**0.5


def test_splits_are_disjoint_parts_of_mnist():
    raw = {part: gzip.decompress((mnist.resources.files("loci.worlds") / f"mnist_{part}_images.idx.gz").read_bytes())
           for part in ("train", "test")}  # fmt: skip
    assert {part: len(content) for part, content in raw.items()} == {"train": 16 + 47_040_000, "test": 16 + 7_840_000}

    def pictures(split):
        return sorted(image.tobytes() for image in mnist.digits(split, False, CPU).images.numpy())

    def cut(part, first, last):
        return sorted(raw[part][16 + 784 * n : 16 + 784 * (n + 1)] for n in range(first, last))

    assert pictures("train") == cut("train", 0, 55_000)
    assert pictures("val") == cut("train", 55_000, 60_000)
    assert pictures("test") == cut("test", 0, 10_000)


def test_classes_are_the_labels_of_mnist():
    digits = mnist.digits("test", True, CPU)
    assert digits.amount.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]  # as MNIST's page has them
    ones = digits.images[digits.first[1] : digits.first[1] + digits.amount[1]]
    zeros = digits.images[: digits.amount[0]]
    assert ones[:, 13:16, 13:16].float().mean() > 150 > 60 > zeros[:, 13:16, 13:16].float().mean()
    first = MovingMnist(split="test").clips([0])
    other = MovingMnist(split="val").clips([0])
    assert not torch.equal(first.frames, other.frames)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "dev"}, "train, val, test"),
        ({"protocol": "ball"}, "ink, box"),
        ({"size": (20, 64)}, "28"),
        ({"length": 0}, "at least 1"),
        ({"digits": 0}, "1 to 255"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(UserError, match=words):
        MovingMnist(**options)


def test_worlds_open_by_name():
    assert open_world("moving_mnist", split="val", size=None, length=9) == MovingMnist(split="val", length=9)
    with pytest.raises(UserError, match="did you mean 'moving_mnist'"):
        open_world("moving_mnists")
    with pytest.raises(UserError, match=r"no option 'lenght' \(did you mean 'length'"):
        open_world("moving_mnist", lenght=3)
