"""Collisions keep momentum and gain no energy; contacts agree with shapes drawn finely; friction is Coulomb's."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loci import random
from loci.worlds.physics import GRAVITY, collide, simulate, slide
from loci.worlds.physics_contacts import Bodies, Matter, contacts, pairs


def crowd(seed, scenes=40, count=5, spread=0.5, bounce=0.7, grip=0.2):
    """Discs and squares thrown together so closely that many overlap, some with several others."""

    def numbers(name, *shape):
        return random.uniform(random.key(seed, name), (scenes, count, *shape), torch.float64)

    bodies = Bodies(
        spread * (2 * numbers("place", 2) - 1),
        4 * numbers("speed", 2) - 2,
        7 * numbers("angle"),
        10 * numbers("spin") - 5,
    )
    mass, extent = 0.5 + numbers("mass"), 0.15 + 0.15 * numbers("extent")
    square = numbers("square") > 0.5
    inertia = torch.where(square, 2 / 3, 1 / 2) * mass * extent**2
    return bodies, Matter(square, extent, mass, inertia, 0.1 + 0 * mass, bounce, grip)


def momentum(bodies, matter):
    linear = (matter.mass[..., None] * bodies.velocity).sum(1)
    x, y = bodies.position.unbind(-1)
    u, v = bodies.velocity.unbind(-1)
    return linear, (matter.mass * (x * v - y * u) + matter.inertia * bodies.spin).sum(1)


def energy(bodies, matter):
    return (matter.mass * bodies.velocity.square().sum(-1) + matter.inertia * bodies.spin**2).sum(1) / 2


def everyone(bodies):
    return torch.ones_like(bodies.angle, dtype=torch.bool)


@pytest.mark.parametrize(("bounce", "grip"), [(0.0, 0.0), (0.7, 0.2), (1.0, 0.0), (1.0, 1.0)])
def test_collisions_keep_momentum_and_gain_no_energy(bounce, grip):
    bodies, matter = crowd(1, bounce=bounce, grip=grip)
    after, met = collide(bodies, matter, everyone(bodies), contacts(bodies, matter))
    struck = met > 0
    per_body = torch.zeros(40, 5).index_add(1, torch.cat(pairs(5, struck.device)), struck.float().repeat(1, 2))
    assert (per_body >= 2).sum() > 20  # the hard case, several contacts at once, is there
    moved = Bodies(bodies.position, after.velocity, bodies.angle, after.spin)  # being pushed apart is not motion
    for one, other in zip(momentum(bodies, matter), momentum(moved, matter), strict=True):
        assert torch.allclose(one, other, atol=1e-12)
    gained = energy(moved, matter) - energy(bodies, matter)
    assert gained.max() < 1e-12
    middle = (matter.mass[..., None] * (after.position - bodies.position)).sum(1)
    assert middle.abs().max() < 1e-12


def test_two_bodies_bounce_without_loss():
    bodies, matter = crowd(2, scenes=400, count=2, spread=0.2, bounce=1.0, grip=0.0)
    after, met = collide(bodies, matter, everyone(bodies), contacts(bodies, matter))
    struck = met > 0
    assert 50 < struck.sum() < 350
    lost = energy(bodies, matter) - energy(after, matter)
    assert lost.abs().max() < 2e-3  # only those that creep up to each other do not bounce
    assert (lost.abs() < 1e-12).float().mean() > 0.95
    assert torch.equal(after.velocity[~struck[:, 0]], bodies.velocity[~struck[:, 0]])


def test_head_on_discs_of_one_mass_swap_velocities():
    one = torch.tensor([[[0.0, 0.0], [0.39, 0.0]]], dtype=torch.float64)
    speed = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    still = torch.zeros(1, 2, dtype=torch.float64)
    matter = Matter(still > 1, still + 0.2, still + 1, still + 0.02, still, bounce=1.0)
    bodies = Bodies(one, speed, still, still)
    after, met = collide(bodies, matter, everyone(bodies), contacts(bodies, matter))
    assert met.item() == 2.0
    assert torch.allclose(after.velocity, speed.flip(1))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31))
def test_contacts_agree_with_shapes_drawn_finely(seed):
    bodies, matter = crowd(seed, scenes=1, count=2, spread=0.3)
    touch = contacts(bodies, matter)
    step = torch.linspace(-1, 1, 401, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(step, step, indexing="ij"), -1)

    def inside(n):
        """How deep each grid point is inside a body, negative outside."""
        apart = grid - bodies.position[0, n]
        if not matter.square[0, n]:
            return matter.extent[0, n] - apart.norm(dim=-1)
        cos, sin = bodies.angle[0, n].cos(), bodies.angle[0, n].sin()
        local = apart @ torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
        return matter.extent[0, n] - local.abs().amax(-1)

    common = torch.minimum(inside(0), inside(1)).max()
    if common > 0.02:
        assert touch.depth[0, 0] > 0
    if common < -0.01:
        assert touch.depth[0, 0] <= 0.001
    if touch.depth[0, 0] > 0.02:
        assert common > -0.01
        row, column = ((touch.point[0, 0] + 1) * 200).round().long().clamp(0, 400).tolist()
        assert min(inside(0)[row, column], inside(1)[row, column]) > -touch.depth[0, 0] - 0.01
        # Moved apart along the normal by the depth, they touch no more.
        shift = touch.normal * (touch.depth + 1e-9)[..., None]
        apart = bodies._replace(position=bodies.position + torch.cat([-shift, shift], 1) / 2)
        assert contacts(apart, matter).depth[0, 0] < 1e-6
        assert touch.normal.norm(dim=-1).sub(1).abs().max() < 1e-12


def test_normals_point_from_the_first_to_the_second():
    bodies, matter = crowd(4, scenes=400, count=2, spread=0.3)
    touch = contacts(bodies, matter)
    light = (touch.depth[:, 0] > 0) & (touch.depth[:, 0] < 0.05)
    along = ((bodies.position[:, 1] - bodies.position[:, 0]) * touch.normal[:, 0]).sum(-1)
    assert light.sum() > 10
    assert (along[light] > 0).all()


def test_friction_stops_after_the_way_coulomb_gives():
    speed, friction = 2.0, 0.1
    zero = torch.zeros(1, 1, dtype=torch.float64)
    bodies = Bodies(zero[..., None] * zero.new_zeros(2), zero[..., None] + zero.new_tensor([speed, 0]), zero, zero + 3)
    matter = Matter(zero > 1, zero + 0.2, zero + 1, zero + 0.02, zero + friction)
    for _ in range(3000):
        bodies = slide(bodies, matter, everyone(bodies), 1e-3)
    assert bodies.position[0, 0, 0].item() == pytest.approx(speed**2 / (2 * friction * GRAVITY), rel=2e-3)
    assert bodies.velocity.abs().max() == 0
    assert bodies.spin.abs().max() == 0
    lever = friction * GRAVITY * 0.2 * 2 / 3 / 0.02  # the deceleration of the spin
    assert bodies.angle[0, 0].item() == pytest.approx(9 / (2 * lever), rel=2e-2)


def test_a_clip_never_gains_energy_and_bodies_do_not_sink_into_each_other():
    bodies, matter = crowd(5, scenes=20, count=5, spread=1.5)
    start = torch.zeros(20, 5, dtype=torch.int64)
    motion = simulate(bodies, matter, start, lambda p: p.norm(dim=-1) > 99, frames=30, rate=25, substeps=8)
    total = torch.stack([energy(Bodies(*(v[:, t] for v in motion.bodies)), matter) for t in range(30)], 1)
    assert total.diff(dim=1).max() < 1e-12
    assert (total[:, -1] < 0.5 * total[:, 0]).any()
    assert motion.there.all()
    assert motion.hit.any(2).any(1).float().mean() > 0.5
    # Those apart at the start are never deep in each other.
    first = contacts(bodies, matter).depth > 0
    for t in range(1, 30):
        depth = contacts(Bodies(*(v[:, t] for v in motion.bodies)), matter).depth
        assert depth[~first].max() < 0.06


def test_bodies_enter_leave_and_meet_only_those_that_are_there():
    position = torch.tensor([[[-1.0, 0], [0, 0.0]]], dtype=torch.float64)
    velocity = torch.tensor([[[3.1, 0], [0, 0.0]]], dtype=torch.float64)
    zero = torch.zeros(1, 2, dtype=torch.float64)
    matter = Matter(zero > 1, zero + 0.2, zero + 1, zero + 0.02, zero, bounce=1.0)
    bodies = Bodies(position, velocity, zero, zero)
    out = lambda p: p[..., 0].abs() > 0.9  # noqa: E731

    def run(enter):
        return simulate(bodies, matter, torch.tensor([enter]), out, frames=20, rate=25, substeps=8)

    met = run([5, 0])
    assert met.there[0, :, 0].tolist() == [False] * 5 + [True] * 15
    frame = int(met.hit[0, :, 0].nonzero()[0])
    assert frame == 5 + math.ceil((1.0 - 0.4) / 3.1 * 25)
    gone = met.there[0, :, 1].tolist()
    assert gone[0]
    assert not gone[-1]
    missed = run([0, 20])
    assert not missed.hit.any()
    assert not missed.there[0, -1].any()


def test_bodies_in_the_very_same_place_part():
    zero = torch.zeros(1, 3, dtype=torch.float64)
    matter = Matter(zero > 1, zero + 0.2, zero + 1, zero + 0.02, zero)
    bodies = Bodies(torch.zeros(1, 3, 2, dtype=torch.float64), torch.zeros(1, 3, 2, dtype=torch.float64), zero, zero)
    for square in (False, True):
        kind = matter._replace(square=zero + square > 0.5)
        after, _ = collide(bodies, kind, everyone(bodies), contacts(bodies, kind))
        assert torch.isfinite(torch.cat([after.position, after.velocity], -1)).all()
        assert (after.position[0, 0] != after.position[0, 2]).any()
