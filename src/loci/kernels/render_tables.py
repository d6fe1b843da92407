"""What the render kernels read: bodies, lamps and camera as flat float32 tables, made on the device for all clips.

A body in a frame is `FIELDS` numbers: 0 place, 3 the nine of its turn, 12 size, 13 1 / size, 14 bounding radius,
15 shape, 16 metal, 17 colour, 20 present, 21 shown, 22 the box of pixels it can cover (top, bottom, left, right),
26 the square of the ball that hides the sky as it does, 27 how strongly.
A lamp of a clip is eight: 0 position, 3 energy, 6 half its edge.
The camera is 24: 0 centre, 3 ahead, 6 right, 9 down, 12 the matrix's first, second and fourth row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from loci.worlds.render_camera import Eye, boxes, corners
from loci.worlds.render_light import ENERGIES, NEAR, POSITIONS, RADII
from loci.worlds.render_shade import CONTACT, CONTACT_SIZE
from loci.worlds.render_shapes import BOUNDS
from loci.worlds.scene import MATERIALS, SHAPES, Scene

FIELDS = 28
LAMP_FIELDS = 8


def body_table(scene: Scene, eye: Eye, labels: bool) -> Tensor:
    """All bodies in all frames [B,T,N,FIELDS]; without labels only what is shown is present."""
    device = scene.position.device
    batch, frames, objects = scene.present.shape
    table = torch.empty(batch, frames, objects, FIELDS, device=device)
    kind = scene.shape.clamp(min=0)
    size = scene.size.to(torch.float32)
    bound = torch.tensor(BOUNDS, device=device)[kind] * size
    ball = (torch.tensor([CONTACT_SIZE[k] for k in range(len(SHAPES))], device=device)[kind] * size) ** 2
    metal = scene.material == MATERIALS.index("metal")
    still = torch.stack((size, 1 / size, bound, kind.to(torch.float32), metal.to(torch.float32)), -1)
    table[..., 0:3] = scene.position
    table[..., 3:12] = scene.rotation.flatten(-2)
    table[..., 12:17] = still[:, None]
    table[..., 17:20] = scene.colour[:, None]
    exists = (scene.shape >= 0)[:, None]
    table[..., 20] = (scene.present if labels else scene.shown) & exists
    table[..., 21] = scene.shown & exists
    points = corners(table[..., 0:3].reshape(-1, 3), bound[:, None].expand(-1, frames, -1).reshape(-1))
    area = boxes(eye, points, eye.size)
    table[..., 22:26] = torch.stack(tuple(area), -1).view(batch, frames, objects, 4)
    hides = ball[:, None] * table[..., 21]
    table[..., 26] = hides
    table[..., 27] = CONTACT * hides * table[..., 2].clamp(min=0)
    return table


def lamp_table(scene: Scene) -> Tensor:
    """The lamps of each clip [B,L,LAMP_FIELDS]."""
    device = scene.position.device
    rows = [(*place, *energy, radius, 0.0) for place, energy, radius in zip(POSITIONS, ENERGIES, RADII, strict=True)]
    table = torch.tensor(rows, device=device).repeat(len(scene.shape), 1, 1)
    if scene.lights is not None:
        table[:, :NEAR, :3] += scene.lights
    return table


def camera_table(eye: Eye) -> Tensor:
    """The camera [24]."""
    return torch.cat((eye.centre, eye.ahead, eye.right, eye.down, eye.rows[[0, 1, 3]].flatten()))
