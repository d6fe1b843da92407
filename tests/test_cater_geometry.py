"""CATER's camera and cells against the recorded tensors."""

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from loci.data.cater_geometry import CATER_CAMERA, cell_centres, project, screen_class, snitch_class, unproject

GOLDEN = Path(__file__).parent / "golden"


def test_geometry_equals_the_recorded():
    recorded = load_file(GOLDEN / "cater_geometry.safetensors")
    assert torch.equal(CATER_CAMERA.rows("cpu", torch.float32), recorded["camera"])
    torch.testing.assert_close(project(recorded["world"]), recorded["screen_yx"], atol=1e-6, rtol=0)
    back = unproject(recorded["predicted_screen_yx"], clip=False)
    torch.testing.assert_close(back, recorded["predicted_world"], atol=5e-6, rtol=0)
    assert torch.equal(snitch_class(recorded["world"]), recorded["label"].long())
    assert torch.equal(screen_class(recorded["predicted_screen_yx"]), recorded["predicted_label"].long())
    assert torch.equal(snitch_class(cell_centres()), torch.arange(36))


def test_class_rounds_down_not_towards_zero_and_clips():
    points = torch.tensor([[-0.5, -0.5, 0.3], [0.5, -2.5, 0.3], [3.0, 3.0, 0.3], [-9.0, 9.0, 0.3]])
    assert snitch_class(points).tolist() == [14, 3, 35, 30]


@settings(deadline=None, max_examples=50)
@given(st.floats(-3, 2.999), st.floats(-3, 2.999), st.floats(0, 2.5))
def test_projection_and_back(x, y, z):
    world = torch.tensor([x, y, z], dtype=torch.float64)
    torch.testing.assert_close(unproject(project(world), z), world, atol=1e-4, rtol=0)
