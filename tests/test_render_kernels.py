"""The render kernels against their torch twin: on a GPU, or in Triton's interpreter where Triton is installed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from loci.kernels import render as kernels
from loci.kernels.render_tables import FIELDS, body_table, camera_table, lamp_table
from loci.worlds.cater import Cater
from loci.worlds.render import render
from loci.worlds.render_camera import open_eye
from loci.worlds.render_light import lamps
from loci.worlds.scene import CATER_CAMERA, SHAPES, Scene, cone_origin, euler


def crowd(device):
    """Two scenes of all shapes in both materials, tilted, hidden, hiding one another; lamps moved; padded."""
    bodies = [
        ("spl", 0.3, (0.6, -1.6, 0.34), 1), ("cone", 0.75, (-1.0, 0.2, cone_origin(0.75)), 0),
        ("cube", 0.5, (1.2, -0.4, 0.5), 1), ("sphere", 0.5, (-0.4, -1.2, 0.5), 1),
        ("cylinder", 0.5, (0.3, 1.0, 0.5), 0), ("sphere", 0.25, (1.6, 0.9, 1.4), 0), ("cube", 0.75, (-2, -2, 0.75), 0),
    ]  # fmt: skip
    count, frames = len(bodies), 2
    shape = torch.tensor([[SHAPES.index(body[0]) for body in bodies]] * 2)
    shape[1, -1] = -1
    place = torch.tensor([[body[2] for body in bodies]] * 2)[:, None].repeat(1, frames, 1, 1)
    place[0, :, :, 0] += torch.tensor([0.0, 0.3])[:, None]
    angles = torch.zeros(2, frames, count, 3)
    angles[..., 2] = torch.arange(count) * 0.7
    angles[:, 1, 2:5, 1] = 0.9
    present = (shape >= 0)[:, None].repeat(1, frames, 1)
    shown = present.clone()
    shown[0, 1:, 3], present[1, 1, 4], shown[1, 1, 4] = False, False, False
    colours = torch.linspace(0.1, 0.9, 2 * count * 3).view(2, count, 3)
    return Scene(
        shape, torch.tensor([[body[1] for body in bodies]] * 2), torch.tensor([[body[3] for body in bodies]] * 2),
        colours, place, euler(angles), present, shown, torch.tensor([0.0, 0.6]).view(2, 1, 1).expand(2, 3, 3).clone(),
    ).to(device)  # fmt: skip


def compare(scene, size):
    ours, twin = render(scene, size, fused=True), render(scene, size, fused=False)
    for fused, plain in ((ours.frames, twin.frames), (ours.background, twin.background)):
        off = (fused.int() - plain.int()).abs()
        assert off.float().mean() < 0.3
        assert (off > 2).float().mean() < 0.002
    assert (twin.frames[:, 0] != twin.background[:, 0]).any(1).float().mean() > 0.05
    for fused, plain in ((ours.visible, twin.visible), (ours.whole, twin.whole)):
        assert plain.sum() > 100
        assert (fused & plain).sum() > 0.99 * (fused | plain).sum()
    bare = render(scene, size, fused=True, labels=False)
    assert bare.visible is None
    assert (bare.frames.int() - ours.frames.int()).abs().max() <= 1


def everything(device, large):
    scene = crowd(device)
    compare(scene, (20, 28))
    # More than 128 rows: five samples for a pixel, and shadows on half the grid.
    size = (240, 320) if large else (130, 40)
    compare(scene[:1].during(slice(0, 1)), size)
    stretch, kernels.SCRATCH = kernels.SCRATCH, 1
    try:
        one_by_one = render(scene, (20, 28), fused=True)
    finally:
        kernels.SCRATCH = stretch
    assert torch.equal(one_by_one.frames, render(scene, (20, 28), fused=True).frames)


@pytest.mark.skipif(not kernels.available(), reason="no Triton here (torch's CPU build comes without)")
def test_kernels_are_their_twin():
    if torch.cuda.is_available():
        everything("cuda", large=True)
        return
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "ignore", __file__], check=True, env=environment)


@pytest.mark.skipif(not (kernels.available() and torch.cuda.is_available()), reason="no GPU here")
def test_clips_are_the_cpu_s():
    world = Cater(size=(60, 80), length=40, jitter=True)
    here, there = (world.clips([3, 8], device=device) for device in ("cpu", "cuda"))
    assert (here.frames.int() - there.frames.cpu().int()).abs().float().mean() < 0.3
    assert (here.whole & there.whole.cpu()).sum() > 0.99 * (here.whole | there.whole.cpu()).sum()
    assert torch.equal(here.container, there.container.cpu())


def test_tables_say_what_the_scene_says():
    scene = crowd("cpu")
    eye = open_eye(CATER_CAMERA, (60, 80), "cpu")
    table = body_table(scene, eye, labels=True)
    assert table.shape == (*scene.present.shape, FIELDS)
    torch.testing.assert_close(table[..., :3], scene.position)
    torch.testing.assert_close(table[..., 3:12].unflatten(-1, (3, 3)), scene.rotation)
    torch.testing.assert_close(table[:, 1, :, 12] * table[:, 1, :, 13], torch.ones_like(scene.size))
    assert torch.equal(table[..., 20] > 0, scene.present)
    assert torch.equal(table[..., 21] > 0, scene.shown)
    assert torch.equal(body_table(scene, eye, labels=False)[..., 20] > 0, scene.shown)
    # Every covered pixel lies in its body's box.
    whole = render(scene, (60, 80)).whole
    row, column = torch.arange(60)[:, None], torch.arange(80)
    top, bottom, left, right = (table[..., 22 + i, None, None] for i in range(4))
    inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    assert whole.any()
    assert not (whole & ~inside).any()
    for entry in range(2):
        light = lamps(scene.lights[entry], "cpu")
        torch.testing.assert_close(lamp_table(scene)[entry, :, :3], light.position)
        torch.testing.assert_close(lamp_table(scene)[entry, :, 3:6], light.energy)
        torch.testing.assert_close(lamp_table(scene)[entry, :, 6], light.radius)
    still = lamp_table(replace(scene, lights=None))
    torch.testing.assert_close(still[1, :, :3], lamps(None, "cpu").position)
    camera = camera_table(eye)
    torch.testing.assert_close(camera[:3], eye.centre)
    torch.testing.assert_close(camera[20:24], eye.rows[3])


if __name__ == "__main__":
    kernels.TILE, kernels.CAST_TILE = (16, 32), (16, 16)  # the interpreter takes its time for each program
    everything("cpu", large=False)
