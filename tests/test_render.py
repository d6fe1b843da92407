"""The ray tracer against geometry that is known otherwise: outlines, distances, shadows, coverage."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loci.worlds.render import encode, pattern, render
from loci.worlds.render_camera import boxes, centres, open_eye, pixels
from loci.worlds.render_light import RADII, lamps, passing, received
from loci.worlds.render_shapes import BOUNDS, CONE, CUBE, CYLINDER, DISTANCES, SPHERE, SPL, along, dot, entry, normal
from loci.worlds.scene import CATER_CAMERA, SHAPES, Scene, cone_origin, euler

SIZE = (60, 80)


def scene(*bodies, frames=1):
    """Bodies (shape, size, place, material, colour), upright and still."""
    n = len(bodies)
    place = torch.tensor([body[2] for body in bodies], dtype=torch.float32)
    everywhere = torch.ones(1, frames, n, dtype=torch.bool)
    return Scene(
        torch.tensor([[SHAPES.index(body[0]) for body in bodies]]),
        torch.tensor([[float(body[1]) for body in bodies]]),
        torch.tensor([[body[3] for body in bodies]]),
        torch.tensor([[body[4] for body in bodies]]),
        place.expand(1, frames, n, 3).contiguous(),
        torch.eye(3).expand(1, frames, n, 3, 3).contiguous(),
        everywhere,
        everywhere.clone(),
    )


GREEN = (0.1, 0.6, 0.1)
RED = (0.8, 0.1, 0.1)


def rays(seed, count=2000):
    """Rays from a ball of radius 3 towards points near the origin."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(3, count, generator=generator)
    start = 3 * start / start.norm(dim=0)
    aim = torch.rand(3, count, generator=generator) * 3 - 1.5
    way = (aim - start) * (0.5 + torch.rand(count, generator=generator))
    return tuple(start), tuple(way)


@pytest.mark.parametrize("kind", range(len(SHAPES)))
def test_rays_end_on_the_surface_and_never_pass_it(kind):
    origin, way = rays(kind)
    t = entry(kind, origin, way)
    hit = torch.isfinite(t)
    assert 0.1 < hit.float().mean() < 0.95
    there = tuple(c[hit] for c in along(origin, way, t))
    assert DISTANCES[kind](there).abs().max() < (0.021 if kind != SPHERE else 1e-4)
    # Along the way to the surface (or past the body) nothing lies inside it.
    for part in (0.2, 0.5, 0.8, 0.95):
        before = along(origin, way, torch.where(hit, t, 4.0) * part)
        assert DISTANCES[kind](before)[hit].min() > -0.021
    for part in torch.linspace(0, 4, 60).tolist():
        missed = DISTANCES[kind](along(origin, way, torch.full_like(t, part)))[~hit]
        assert missed.min() > -0.03


@pytest.mark.parametrize("kind", range(len(SHAPES)))
def test_normals_are_the_distance_s_gradient(kind):
    origin, way = rays(10 + kind)
    t = entry(kind, origin, way)
    hit = torch.isfinite(t)
    p = torch.stack([c[hit] for c in along(origin, way, t)]).double().requires_grad_()
    DISTANCES[kind](tuple(p)).sum().backward()
    n = normal(kind, tuple(p.detach().float()))
    agree = dot(n, tuple(p.grad.float())) / p.grad.norm(dim=0)
    torch.testing.assert_close(dot(n, n), torch.ones_like(n[0]), atol=1e-4, rtol=0)
    # A cone's sides are 32 flat ones; elsewhere only seams may differ.
    assert agree.quantile(0.02) > (math.cos(math.pi / 32) - 1e-3 if kind == CONE else 0.98)


def test_bounds_hold_the_shapes():
    for kind, bound in enumerate(BOUNDS):
        origin, way = rays(20 + kind)
        t = entry(kind, origin, way)
        p = along(origin, way, t)
        reach = torch.sqrt(dot(p, p))[torch.isfinite(t)].max()
        assert reach < bound + 0.02
        assert reach > 0.9 * bound


def test_a_ray_goes_through_the_point_it_projects_to():
    eye = open_eye(CATER_CAMERA, SIZE, "cpu")
    world = torch.tensor([[0.3, -1.2, 0.4], [2.0, 2.0, 0.0], [-2.5, 1.0, 2.0]])
    row, column = CATER_CAMERA.project(world).unbind(-1)
    direction = torch.stack(eye.direction(row, column), -1)
    away = world - eye.centre
    cosine = (direction * away).sum(-1) / direction.norm(dim=-1) / away.norm(dim=-1)
    torch.testing.assert_close(cosine, torch.ones(3), atol=1e-6, rtol=0)


@settings(deadline=None, max_examples=25)
@given(st.floats(-2.5, 2.5), st.floats(-2.5, 2.5), st.floats(0.2, 2.8), st.floats(0.2, 0.8))
def test_boxes_hold_every_covered_pixel(x, y, z, radius):
    """Against the ray of each pixel's centre and the ball, tested by its distance from the ray."""
    eye = open_eye(CATER_CAMERA, SIZE, "cpu")
    middle = torch.tensor([[x, y, z]])
    signs = torch.tensor([(a, b, c) for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)])
    box, row, column = pixels(boxes(eye, middle[:, None] + radius * signs, SIZE))
    listed = torch.zeros(SIZE, dtype=torch.bool)
    listed[row, column] = True
    assert box.sum() == 0
    assert len(row) == listed.sum()
    r, c = torch.meshgrid(centres(SIZE[0], "cpu"), centres(SIZE[1], "cpu"), indexing="ij")
    direction = torch.stack(eye.direction(r, c), -1)
    direction = direction / direction.norm(dim=-1, keepdim=True)
    off = middle - eye.centre
    past = (off**2).sum() - (direction * off).sum(-1) ** 2
    assert not ((past < radius**2) & ~listed).any()


def test_a_sphere_s_mask_is_its_outline():
    """The outline of a sphere from pixel centres: at most the pixels on the edge differ."""
    eye = open_eye(CATER_CAMERA, SIZE, "cpu")
    centre = torch.tensor([0.5, -0.5, 0.75])
    drawn = render(scene(("sphere", 0.75, centre.tolist(), 0, GREEN)), SIZE)
    r, c = torch.meshgrid(centres(SIZE[0], "cpu"), centres(SIZE[1], "cpu"), indexing="ij")
    direction = torch.stack(eye.direction(r, c), -1)
    direction = direction / direction.norm(dim=-1, keepdim=True)
    off = centre - eye.centre
    inside = (off**2).sum() - (direction * off).sum(-1) ** 2 < 0.75**2
    differ = drawn.visible[0, 0, 0] ^ inside
    assert inside.sum() > 130
    assert differ.sum() <= 4
    assert torch.equal(drawn.visible, drawn.whole)


def test_occlusion_is_by_distance():
    eye = open_eye(CATER_CAMERA, SIZE, "cpu").centre
    near, far = [1.2, -0.9, 0.5], [0.0, 0.2, 0.5]
    assert math.dist(near, eye) < math.dist(far, eye)
    both = render(scene(("sphere", 0.5, far, 0, RED), ("cube", 0.5, near, 0, GREEN)), SIZE)
    assert torch.equal(both.visible[0, 0, 1], both.whole[0, 0, 1])
    hidden = both.whole[0, 0, 0] & both.whole[0, 0, 1]
    assert hidden.sum() > 5
    assert not (both.visible[0, 0, 0] & hidden).any()
    assert both.visible[0, 0].sum(0).max() == 1


def test_what_is_not_shown_leaves_no_trace_but_its_whole_mask():
    bodies = (("sphere", 0.5, [0.0, 0.0, 0.5], 1, RED), ("cube", 0.5, [2.0, -1.0, 0.5], 1, GREEN))
    one, two = scene(bodies[1]), scene(*bodies)
    two.shown[:, :, 0] = False
    alone, beside = render(one, SIZE), render(two, SIZE)
    assert torch.equal(alone.frames, beside.frames)
    assert not beside.visible[0, 0, 0].any()
    assert beside.whole[0, 0, 0].sum() > 50
    two.present[:, :, 0] = False
    assert not render(two, SIZE).whole[0, 0, 0].any()


def test_the_floor_hides_what_is_below_it():
    sunk = render(scene(("sphere", 0.5, [0.0, 0.0, -0.6], 0, RED)), SIZE)
    assert not sunk.whole.any()
    half, full = (render(scene(("sphere", 0.5, [0.0, 0.0, z], 0, RED)), SIZE).whole.sum() for z in (0.0, 0.5))
    assert 0.3 < half / full < 0.8


def test_an_empty_scene_is_its_background():
    empty = scene(("sphere", 0.5, [0.0, 0.0, 0.5], 0, RED))
    empty.present[:], empty.shown[:] = False, False
    drawn = render(empty, SIZE)
    assert torch.equal(drawn.frames[:, 0], drawn.background[:, 0])
    assert drawn.background.float().std() > 5


def test_shadows_darken_the_floor_softly():
    """A lifted ball's shadow lies where the line from the sun past it meets the floor, and fades at its edge."""
    centre = torch.tensor([-0.5, -0.5, 2.0])
    drawn = render(scene(("sphere", 0.5, centre.tolist(), 0, RED)), (120, 160))
    sun = lamps(None, "cpu").position[3]
    place = sun + (centre - sun) * (sun[2] / (sun[2] - centre[2]))
    row, column = CATER_CAMERA.project(place)
    i, j = int((row + 1) * 60), int((column + 1) * 80)
    light = drawn.frames[0, 0].float().mean(0) / drawn.background[0, 0].float().mean(0)
    light = torch.where(drawn.visible[0, 0, 0], 1.0, light)
    assert light[i, j] < 0.85
    assert light[i - 2 : i + 3, j - 2 : j + 3].max() < 0.9
    assert light[-5:, :5].min() > 0.99
    steps = (light[i, j:] - light[i, j:].roll(-1)).abs()[:20]
    assert steps.max() < 0.08


def test_lamp_light_passing_bodies():
    """Nothing passes the middle of a big body, everything passes far beside it, half passes at its edge."""
    for kind in (CUBE, SPHERE, CYLINDER, CONE):
        for turn in (0.0, 0.4, 1.1):
            away = torch.tensor([0.0, 9.0])
            origin = (away * math.cos(turn), away * math.sin(turn), torch.full((2,), -3.0))
            up = (torch.zeros(2), torch.zeros(2), torch.full((2,), 10.0))
            share = passing(kind, origin, up, torch.ones(2), torch.tensor(0.4))
            assert share.tolist() == pytest.approx([0, 1], abs=1e-4)
    edge = (torch.tensor([1.0]), torch.zeros(1), torch.tensor([-3.0]))
    up = (torch.zeros(1), torch.zeros(1), torch.tensor([10.0]))
    for kind in (CUBE, SPHERE, CYLINDER):
        assert passing(kind, edge, up, torch.ones(1), torch.tensor(0.4)).item() == pytest.approx(0.5, abs=0.1)


def test_light_falls_off_and_needs_a_facing_surface():
    light = lamps(None, "cpu")
    up = tuple(torch.tensor([v, v]) for v in (0.0, 0.0, 1.0))
    down = tuple(-v for v in up)
    place = tuple(torch.tensor(v) for v in ([0.0, 20.0], [0.0, -20.0], [0.0, 0.0]))
    near, far = received(light, place, up)[:3].unbind(1)
    assert (near > 4 * far).all()
    assert (received(light, place, down) == 0).all()
    assert len(RADII) == len(light.energy)
    moved = lamps(torch.ones(3, 3), "cpu").position - light.position
    assert moved[:3].eq(1).all()
    assert moved[3].eq(0).all()


def test_metal_mirrors_its_neighbour_rubber_does_not():
    ball = [0.9, -0.9, 0.75]
    beside = ("cube", 0.5, [-0.4, -1.6, 0.5], 0, RED)
    for material, changes in ((1, True), (0, False)):
        alone = render(scene(("sphere", 0.75, ball, material, (0.9, 0.9, 0.9))), SIZE)
        together = render(scene(("sphere", 0.75, ball, material, (0.9, 0.9, 0.9)), beside), SIZE)
        seen = alone.visible[0, 0, 0] & together.visible[0, 0, 0]
        # Red beside takes green from a mirror far more than from matt rubber, which only lies in its shadow.
        lost = (alone.frames[0, 0].float() - together.frames[0, 0].float())[:, seen]
        assert ((lost[1] - lost[0]).max() > 30) == changes


def test_colours_are_linear_light_on_rubber():
    drawn = render(scene(("sphere", 0.75, [0.0, 0.0, 0.75], 0, GREEN)), SIZE)
    red, green, blue = drawn.frames[0, 0].float()[:, drawn.visible[0, 0, 0]].mean(1)
    assert green > 1.8 * red
    assert abs(red - blue) < 15


def test_frames_are_drawn_one_by_one_as_together():
    moving = scene(("cube", 0.5, [0.0, 0.0, 0.5], 1, RED), ("spl", 0.3, [1.0, -1.0, 0.342], 1, GREEN), frames=5)
    moving.position[0, :, 0, 0] = torch.linspace(-1, 1, 5)
    moving.rotation[0, :, 1] = euler(torch.linspace(0, 2, 5)[:, None] * torch.tensor([0.0, 1.0, 0.0]))
    together = render(moving, SIZE)
    single = render(moving.during(slice(3, 4)), SIZE)
    assert torch.equal(together.frames[:, 3], single.frames[:, 0])
    assert torch.equal(together.visible[:, 3], single.visible[:, 0])


def test_sizes_show_the_same_scene():
    """A frame of half the size is nearly the mean of the larger one's pixels, also where shadows are on a half grid."""
    bodies = scene(("cube", 0.5, [0.0, 0.0, 0.5], 0, RED), ("cone", 0.75, [1.5, 0.5, cone_origin(0.75)], 0, GREEN))
    small, large = (render(bodies, size, labels=False).frames[0].float() for size in ((120, 160), (240, 320)))
    difference = (torch.nn.functional.avg_pool2d(large, 2) - small).abs()
    assert difference.mean() < 1
    assert difference.quantile(0.999) < 40


def test_a_camera_of_another_aspect_keeps_the_width():
    wide = CATER_CAMERA.seen_in((320, 480))
    world = torch.tensor([[1.0, -1.0, 0.5], [0.0, 2.0, 0.0]])
    before, after = CATER_CAMERA.project(world), wide.project(world)
    torch.testing.assert_close(after[:, 1], before[:, 1])
    torch.testing.assert_close(after[:, 0], before[:, 0] * 1.125)
    assert CATER_CAMERA.seen_in((60, 80)) is CATER_CAMERA


def test_samples_are_spread_over_the_pixel():
    for size in ((60, 80), (240, 320)):
        offsets = pattern(size, "cpu")
        assert len(offsets) % 2 == 1
        assert offsets[0].tolist() == [0, 0]
        torch.testing.assert_close(offsets.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
        assert len(offsets[:, 0].unique()) == len(offsets[:, 1].unique()) == len(offsets)


def test_encoding_is_srgb():
    assert encode(torch.tensor([0.0, 0.0031308, 0.2158605, 1.0, 7.0])).tolist() == [0, 10, 128, 255, 255]


def test_the_snitch_has_holes():
    """Seen along its diagonal, floor shows through the three rings."""
    diagonal = torch.tensor([[1.0, 1.0, 1.0]]) / math.sqrt(3)
    for way, open_ in (((-diagonal), True), (torch.tensor([[0.0, 0.0, -1.0]]), False)):
        start = tuple((-3 * way).T)
        assert torch.isinf(entry(SPL, start, tuple(way.T))).item() == open_
