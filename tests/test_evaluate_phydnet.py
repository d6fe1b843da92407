import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from loci import random
from loci.errors import UserError
from loci.evaluate import phydnet_train
from loci.evaluate.phydnet import PhyCell, PhyDNet, PhyDNetConfig, moments
from loci.evaluate.phydnet_train import Recipe, lessons, sequence_loss
from loci.worlds.moving_mnist import MovingMnist

SMALL = PhyDNetConfig(16, 16, channels=8, kernel=3, memory=(12, 8), groups=4)


def model(config=SMALL):
    return phydnet_train.new_model(config, 0)


def frames(batch, length, side=16):
    """A bright square that moves one pixel a frame."""
    clip = torch.zeros(batch, length, 3, side, side)
    for b in range(batch):
        for t in range(length):
            clip[b, t, :, 3 + b : 7 + b, t : t + 4] = 1
    return clip


def test_moments_against_their_definition():
    kernels = random.uniform(random.key(1, "kernels"), (3, 2, 5, 5)).double()
    found = moments(kernels).numpy()
    for n in range(3):
        for c in range(2):
            for i in range(5):
                for j in range(5):
                    total = sum(
                        (u - 2) ** i * (v - 2) ** j * kernels[n, c, u, v].item() for u in range(5) for v in range(5)
                    )
                    expected = total / (math.factorial(i) * math.factorial(j))
                    np.testing.assert_allclose(found[n, c, i, j], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("stencil", "order"),
    [
        ([[0, 0, 0], [0, 1, 0], [0, 0, 0]], (0, 0)),
        ([[0, 0, 0], [-0.5, 0, 0.5], [0, 0, 0]], (0, 1)),
        ([[0, 1, 0], [0, -2, 0], [0, 1, 0]], (2, 0)),
        ([[0.25, 0, -0.25], [0, 0, 0], [-0.25, 0, 0.25]], (1, 1)),
    ],
)
def test_a_difference_stencil_has_the_moment_of_its_derivative(stencil, order):
    matrix = moments(torch.tensor(stencil, dtype=torch.float64))
    assert matrix[order] == pytest.approx(1)
    lower = [(i, j) for i in range(3) for j in range(3) if i + j <= sum(order) and (i, j) != order]
    assert all(abs(matrix[place]) < 1e-9 for place in lower)


def test_kernels_with_no_moment_but_one_take_that_derivative():
    """Solve for the kernel of every order; on a polynomial it gives the derivative exactly."""
    side = 5
    basis = moments(torch.eye(side * side, dtype=torch.float64).view(-1, side, side)).flatten(1).T
    kernels = torch.linalg.solve(basis, torch.eye(side * side, dtype=torch.float64)).T.view(-1, side, side)
    torch.testing.assert_close(moments(kernels).flatten(1), torch.eye(side * side, dtype=torch.float64))
    x, y = torch.meshgrid(torch.arange(7.0) - 3, torch.arange(7.0) - 3, indexing="ij")
    field = (x**2 * y + 3 * y**2 - x).double()
    derivative = F.conv2d(field[None, None], kernels[:, None])[0, :, 1, 1]  # at x = y = 0
    by_order = derivative.view(side, side)
    assert by_order[0, 2] == pytest.approx(6)  # d²/dy²
    assert by_order[2, 1] == pytest.approx(2)  # d³/dx²dy
    assert by_order[1, 0] == pytest.approx(-1)
    assert by_order[1, 1] == pytest.approx(0, abs=1e-9)


def test_the_moment_loss_is_zero_at_exact_kernels_and_can_be_learned_away():
    cell = PhyCell(2, 3)
    basis = moments(torch.eye(9).view(-1, 3, 3)).flatten(1).T
    exact = torch.linalg.solve(basis, torch.eye(9)).T.view(9, 1, 3, 3).expand(-1, 2, -1, -1)
    before = cell.moment_loss().item()
    with torch.no_grad():
        cell.derivatives.weight.copy_(exact)
    assert cell.moment_loss().item() < 1e-9 < before


def test_the_gain_decides_between_prediction_and_what_is_seen():
    cell = PhyCell(4, 3)
    seen, hidden = random.normal(random.key(2), (2, 3, 4, 5, 5)).unbind(0)
    with torch.no_grad():
        cell.gain.weight.zero_()
        cell.gain.bias.fill_(50)
        torch.testing.assert_close(cell(seen, hidden), seen)
        cell.gain.bias.fill_(-50)
        predicted = hidden + cell.mix(cell.norm(cell.derivatives(hidden)))
        torch.testing.assert_close(cell(seen, hidden), predicted)


def test_shapes_and_time():
    net, clip = model(), frames(2, 6)
    state, outputs = net.observe(clip, net.bootstrap(clip[:, 0], net.start(2)))
    assert outputs.frame.shape == (2, 6, 3, 16, 16)
    _, imagined = net.imagine(state, 4)
    assert imagined.frame.shape == (2, 4, 3, 16, 16)
    assert (outputs.frame[:, :, 0] == outputs.frame[:, :, 2]).all()
    later = clip.clone()
    later[:, 4] = 1 - later[:, 4]
    _, other = net.observe(later, net.start(2))
    torch.testing.assert_close(other.frame[:, :4], outputs.frame[:, :4])
    assert not torch.allclose(other.frame[:, 4], outputs.frame[:, 4])


def test_imagining_is_seeing_what_was_predicted():
    net, clip = model(), frames(1, 3)
    state, outputs = net.observe(clip, net.start(1))
    _, imagined = net.imagine(state, 3)
    again, seen = net.start(1), clip
    _, outputs = net.observe(torch.cat((seen, outputs.frame[:, -1:], imagined.frame[:, :2]), 1), again)
    torch.testing.assert_close(outputs.frame[:, -3:], imagined.frame)


def test_it_overfits_a_tiny_sequence():
    net, clip = model(), frames(2, 8)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(60):
        loss = sequence_loss(net, clip, 4, [False] * 4)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        state, outputs = net.observe(clip[:, :4], net.start(2))
        _, imagined = net.imagine(state, 3)
    predicted = torch.cat((outputs.frame[:, -1:], imagined.frame), 1)
    copied = (clip[:, 3:4] - clip[:, 4:]).square().mean()
    assert (predicted - clip[:, 4:]).square().mean() < 0.3 * copied


def test_the_teacher_fades():
    recipe = Recipe(updates=1000, steps=200, taught=0.5)
    shares = [sum(lessons(recipe, update)) / 200 for update in (0, 250, 500, 999)]
    assert shares[0] == 1
    assert 0.35 < shares[1] < 0.65
    assert shares[2:] == [0, 0]
    assert lessons(recipe, 7) == lessons(recipe, 7)


def test_a_run_that_was_stopped_goes_on_exactly(tmp_path):
    source = MovingMnist(size=(32, 32), length=5)
    config = PhyDNetConfig(32, 32, channels=8, kernel=3, memory=(8,), groups=4)
    recipe = Recipe(updates=4, batch=2, given=3, steps=2)

    class StoppedError(Exception):
        pass

    whole = phydnet_train.train(tmp_path / "whole", source, recipe, config)
    first = tmp_path / "parts"
    seen = []
    broken = MovingMnist(size=(32, 32), length=5)
    calls = {"n": 0}

    class Breaking:
        size, length, names = broken.size, broken.length, broken.names

        def __len__(self):
            return len(broken)

        def clips(self, indices, **more):
            calls["n"] += 1
            if calls["n"] == 3:
                raise StoppedError
            seen.append(list(indices))
            return broken.clips(indices, **more)

    with pytest.raises(StoppedError):
        phydnet_train.train(first, Breaking(), recipe, config, save_every=1)
    resumed = phydnet_train.train(first, source, recipe, config, save_every=1)
    assert seen == [[0, 1], [2, 3]]
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    loaded = phydnet_train.load(first)
    torch.testing.assert_close(loaded.paint.weight, whole.paint.weight, rtol=0, atol=0)
    assert phydnet_train.is_phydnet(first)
    with pytest.raises(UserError, match="other settings"):
        phydnet_train.train(first, source, Recipe(updates=5, batch=2, given=3, steps=2), config)


def test_only_a_phydnet_is_one(tmp_path):
    from evaluating import tiny
    from loci import checkpoint

    path = tmp_path / "loci.safetensors"
    checkpoint.save(path, tiny())
    assert not phydnet_train.is_phydnet(path)
    assert not phydnet_train.is_phydnet(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no PhyDNet"):
        phydnet_train.load(path)
    assert load_file(path)


@pytest.mark.parametrize("wrong", [{"height": 30}, {"kernel": 4}, {"memory": (8, 12)}])
def test_sizes_that_cannot_be_are_refused(wrong):
    with pytest.raises(UserError):
        PhyDNet(PhyDNetConfig(**{"height": 16, "width": 16, "channels": 8, "groups": 4, "memory": (8,), **wrong}))
