"""What a network is worth on sequences that it does not learn from, and the picture of it."""

from dataclasses import replace

import pytest
import torch

import training
from loci import Loci, random
from loci.config import Config
from loci.model.loss import object_error
from loci.train.feed import Batch, Feed
from loci.train.picture import COLUMNS, GAP, training_picture
from loci.train.validate import MEASURES, evaluate
from loci.worlds.moving_mnist import MovingMnist

LENGTH = 5


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = Loci(training.tiny().model).double().train()
    with torch.no_grad():
        model.encoder.size_growth.fill_(0.5)
        model.compose.background_growth.fill_(1)
    return model


@pytest.fixture
def feed():
    source = MovingMnist(split="val", size=(32, 32), length=LENGTH)
    data = replace(Config().data, batch=3)
    return Feed(source, data, seed=0, entries=range(3), device=torch.device("cpu"), snitch=False)


def by_hand(model, frames, clip, background=None):
    """The means over one clip: the first frame shown as often as in training, then frame by frame without noise."""
    keys = random.key(7, "validation", torch.tensor([clip]))
    state = model.start(1, torch.zeros(3, 32, 32) if background is None else background[0], keys=keys)
    for _ in range(model.config.bootstrap):
        state, _ = model.step(frames[None, 0], state, noise=False, bootstrapping=True)
    found = []
    for t in range(LENGTH - 1):
        shown = None if background is None else background[None, t]
        state, out = model.step(frames[None, t], state, noise=False, background=shown)
        target = frames[None, t + 1].double() / 255
        entropy = torch.nn.functional.binary_cross_entropy(out.frame.clamp(0, 1), target)
        error = (out.frame - target).square().mean()
        visible = (out.masks[:, :-1].amax((2, 3)) > 0.5).double().sum()
        found.append([entropy, object_error(out.frame, target, state.background), error, visible, out.gates.mean()])
    return torch.tensor(found).double().mean(0)


@pytest.mark.parametrize("portion", [1, 2, 3])
def test_held_out_clips_are_watched_as_they_would_be_later(model, feed, portion):
    total = evaluate(model, feed, [0, 2, 5], portion, seed=7)
    with torch.no_grad():
        expected = sum(by_hand(model, feed.read([clip]).frames[0], clip) for clip in (0, 2, 5))
    assert len(total) == len(MEASURES) + 1
    assert total[-1] == 3
    torch.testing.assert_close(total[:-1], expected, rtol=1e-9, atol=1e-12)
    assert model.training


def test_a_background_that_moves_is_the_one_of_each_frame(model, feed, monkeypatch):
    frames = feed.read([1]).frames
    moving = torch.arange(LENGTH, dtype=torch.uint8)[None, :, None, None, None].expand(1, -1, 3, 32, 32) * 20
    monkeypatch.setattr(feed, "again", lambda _: Batch(frames, moving, None))
    total = evaluate(model, feed, [1], 1, seed=7)
    with torch.no_grad():
        torch.testing.assert_close(total[:-1], by_hand(model, frames[0], 1, moving[0]), rtol=1e-9, atol=1e-12)


def test_what_was_read_once_is_kept_as_far_as_there_is_room(feed, monkeypatch):
    from loci.train import feed as module

    first = feed.again([3, 4])
    assert feed.again([3, 4]) is first
    monkeypatch.setattr(module, "KEPT", first.frames.nbytes + 1)
    assert feed.again([5, 6]) is not feed.again([5, 6])
    assert feed.again([3, 4]) is first


def test_a_picture_has_its_rows_and_columns_and_changes_nothing(model, feed):
    batch = feed.read([0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    picture = training_picture(model, batch, seed=0)
    rows, columns = 3 + model.config.slots, min(COLUMNS, LENGTH - 1)
    side = (32 + GAP) * 3  # small frames are shown three times as large
    assert picture.shape == (3, rows * side, columns * side)
    assert picture.dtype == torch.uint8
    cells = picture.view(3, rows, side, columns, side)[:, :, : 32 * 3, :, : 32 * 3]
    for column, time in enumerate(range(LENGTH - 1)):
        assert torch.equal(cells[:, 0, ::3, column, ::3], batch.frames[0, time + 1])
    painted = cells[:, 3:].double().sum(1)  # the slots together are the frame: its background is black
    assert (painted - cells[:, 1]).abs().max() <= model.config.slots
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
