"""The renderer on a GPU: three kernels for a stretch of frames of many clips, no question to the host in between.

The torch twin, which these must equal, is the rest of `loci.worlds.render`; what is computed and why is said there.

1. `_floor_kernel`: what reaches each point of the floor's grid, of each lamp and of the sky.
2. `_cast_kernel`: which body each sample of each pixel meets first and how far away; the masks.
3. `_shade_kernel`: the floor's light, the light of each body in each pixel, both mixed and encoded.

A program works on a tile of one frame and reads the frame's bodies as scalars: it passes over a body whose bounding
ball touches nothing of the tile, and branches on a body's shape without parting its threads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loci.kernels.render_tables import FIELDS, body_table, camera_table, lamp_table
from loci.worlds.render_camera import Eye
from loci.worlds.render_light import RADII
from loci.worlds.scene import Scene

try:
    import triton

    from loci.kernels import render_kernels as kernels
except ImportError:  # there is none for CPUs; the twin does the work there
    triton = None

SCRATCH = 256 * 2**20
"""Bytes for the floor's light and the samples of a stretch of frames: bounds the memory beyond the result."""

CAST_TILE = (8, 8)
TILE = (8, 16)
"""Rows and columns of pixels of one program: where there are many samples for each, fewer pixels."""


def available() -> bool:
    """Whether Triton is installed."""
    return triton is not None


def draw(scene: Scene, eye: Eye, grid: tuple[int, int], offsets: Tensor, labels: bool) -> tuple[Tensor, ...]:
    """Frames [B,T,3,H,W] uint8, visible and whole masks [B,T,N,H,W] bool (without labels, nothing in them).

    Args:
        scene: What there is to see, on a GPU.
        eye: The camera.
        grid: The size of the grid on which the floor's shadows are computed.
        offsets: [S,2] where a pixel's samples lie.
        labels: Also the masks.
    """
    device = scene.position.device
    (batch, length, objects), (height, width) = scene.present.shape, eye.size
    samples, planes = len(offsets), len(RADII) + 1
    bodies = body_table(scene, eye, labels).view(batch * length, objects, FIELDS)
    lamps, camera, offsets = lamp_table(scene), camera_table(eye), offsets.to(torch.float32).contiguous()
    frames = torch.empty(batch * length, 3, height, width, dtype=torch.uint8, device=device)
    shape = (batch * length, objects, height, width) if labels else (0, objects, height, width)
    visible, whole = (torch.empty(shape, dtype=torch.bool, device=device) for _ in range(2))
    each = 5 * samples * height * width + 4 * planes * grid[0] * grid[1]
    stretch = min(batch * length, max(1, SCRATCH // each))
    shares = torch.empty(stretch, planes, *grid, device=device)
    ids = torch.empty(stretch, height, width, samples, dtype=torch.uint8, device=device)
    depth = torch.empty(stretch, height, width, samples, device=device)
    padded = triton.next_power_of_2(samples)
    options = {"ROWS": TILE[0], "COLUMNS": TILE[1], "num_warps": 4}
    cast_options = {"ROWS": CAST_TILE[0], "COLUMNS": CAST_TILE[1], "num_warps": 4, "LABELS": labels}
    with torch.cuda.device_of(frames):
        for first in range(0, batch * length, stretch):
            count = min(stretch, batch * length - first)
            sizes = (first, length, objects, height, width, *grid)
            kernels.floor_kernel[(count * _tiles(grid, TILE),)](
                bodies, lamps, camera, shares, first, length, objects, *grid, **options
            )
            kernels.cast_kernel[(count * _tiles(eye.size, CAST_TILE),)](
                *(bodies, camera, offsets, ids, depth, visible, whole, first, objects, height, width),
                SAMPLES=samples,
                PADDED=padded,
                **cast_options,
            )
            kernels.shade_kernel[(count * _tiles(eye.size, TILE),)](
                *(bodies, lamps, camera, offsets, shares, ids, depth, frames, *sizes),
                SAMPLES=samples,
                PADDED=padded,
                SAME=grid == eye.size,
                **options,
            )
    return (
        frames.view(batch, length, 3, height, width),
        visible.view(batch, -1, objects, height, width),
        whole.view(batch, -1, objects, height, width),
    )


def _tiles(size: tuple[int, int], tile: tuple[int, int]) -> Any:
    return triton.cdiv(size[0], tile[0]) * triton.cdiv(size[1], tile[1])
