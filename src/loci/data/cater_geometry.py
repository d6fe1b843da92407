"""CATER's camera and its 36 cells: from the world to the screen, back to the floor, and to the class.

Points on screen are (row, column) in [-1, 1]; the class of a snitch is the cell of the 6 x 6 grid on [-3, 3)² that
its x and y lie in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from loci.worlds.scene import CATER_CAMERA, Camera

SNITCH_HEIGHT = 0.3421497941017151
"""The plane on which a position on screen is taken to lie: the height of a resting snitch's centre."""

CELLS = 6
REACH = 3.0
LAST = REACH - 1e-5


def project(world: Tensor, camera: Camera = CATER_CAMERA) -> Tensor:
    """World points [..., 3] to (row, column) [..., 2]."""
    return camera.project(world)


def unproject(
    screen: Tensor, height: float = SNITCH_HEIGHT, camera: Camera = CATER_CAMERA, *, clip: bool = True
) -> Tensor:
    """(row, column) [..., 2] to the world point [..., 3] seen there on the plane z = height.

    With `clip`, x and y are brought into [-3, 3 - 1e-5], where they have a class.
    """
    # A class hangs on floor(x): solve in float64 so that the way back does not move a point across a cell's border.
    rows = camera.rows(screen.device, torch.float64)
    row, column = screen.to(torch.float64).unbind(-1)
    # column·p3 - p0 = 0 and row·p3 + p1 = 0 are two linear equations in x and y.
    a = [column * rows[3, i] - rows[0, i] for i in range(4)]
    b = [row * rows[3, i] + rows[1, i] for i in range(4)]
    a_known, b_known = a[2] * height + a[3], b[2] * height + b[3]
    determinant = a[0] * b[1] - a[1] * b[0]
    x = (a[1] * b_known - b[1] * a_known) / determinant
    y = (b[0] * a_known - a[0] * b_known) / determinant
    plane = torch.stack((x, y), -1)
    if clip:
        plane = plane.clamp(-REACH, LAST)
    return torch.cat((plane, torch.full_like(plane[..., :1], height)), -1).to(screen.dtype)


def snitch_class(world: Tensor) -> Tensor:
    """The class [...] int64 of world points [..., 2 or 3]: (floor(y) + 3)·6 + floor(x) + 3, with x, y in [-3, 3)."""
    cell = (torch.floor(world[..., :2].clamp(-REACH, LAST)) + REACH).to(torch.int64)
    return cell[..., 1] * CELLS + cell[..., 0]


def cell_centres(device: torch.device | str = "cpu") -> Tensor:
    """The centres [36, 2] (x, y) of the cells in the order of their classes."""
    middle = torch.arange(CELLS, device=device, dtype=torch.float32) - REACH + 0.5
    y, x = torch.meshgrid(middle, middle, indexing="ij")
    return torch.stack((x, y), -1).flatten(0, 1)


def screen_class(screen: Tensor) -> Tensor:
    """The class [...] of positions on screen [..., 2], taken to lie at a resting snitch's height."""
    return snitch_class(unproject(screen))
