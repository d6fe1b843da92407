"""What the renderer draws: shapes, materials and poses as plain tensors, and the camera that looks at them.

The world is right-handed with z up and the floor at z = 0; one unit is CATER's. B scenes, T frames, N objects (padded).
Nothing here knows about a data set: `cater`, `clevrer` and readers of scene files build a `Scene` and call `render`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

SHAPES = ("cube", "sphere", "cylinder", "cone", "spl")
MATERIALS = ("rubber", "metal")

COLOURS: dict[str, tuple[int, int, int]] = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
    "gold": (255, 215, 0),
}
"""CLEVR's eight colours and the snitch's. Its scenes take value / 255 as linear light, so on screen they look paler."""


@dataclass(frozen=True)
class Camera:
    """A pinhole camera as CATER writes it: with p = matrix · (x, y, z, 1), column = p0 / p3 and row = -p1 / p3.

    Rows and columns run from -1 at the frame's outer top-left edge to 1 at its outer bottom-right edge; so pixel i of n
    has its centre at (2·i + 1)/n - 1.

    Attributes:
        matrix: Four rows of four.
        aspect: Width / height of the frames it is made for. A frame of another aspect keeps the horizontal field of
            view and sees more or less of the scene vertically.
    """

    matrix: tuple[tuple[float, float, float, float], ...]
    aspect: float = 4 / 3

    def seen_in(self, size: tuple[int, int]) -> Camera:
        """The same camera with a sensor of these frames' aspect."""
        height, width = size
        aspect = width / height
        if math.isclose(aspect, self.aspect, rel_tol=1e-3):
            return self
        first, second, third, fourth = self.matrix
        stretched = (second[0], second[1], second[2], second[3])
        scale = aspect / self.aspect
        return Camera((first, tuple(value * scale for value in stretched), third, fourth), aspect)  # type: ignore[arg-type]

    def rows(self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
        """The matrix as a tensor [4,4]."""
        return torch.tensor(self.matrix, dtype=dtype, device=device)

    def project(self, world: Tensor) -> Tensor:
        """World points [..., 3] to (row, column) [..., 2]."""
        rows = self.rows(world.device, world.dtype)
        x, y, z = world.unbind(-1)
        column, row, depth = ((r[0] * x + r[1] * y + r[2] * z + r[3]) for r in (rows[0], rows[1], rows[3]))
        return torch.stack((-row / depth, column / depth), -1)


CATER_CAMERA = Camera(
    (
        (1.4503, 1.6376, 0.0, -0.0251),
        (-1.0346, 0.9163, 2.5685, 0.0095),
        (-0.6606, 0.5850, -0.4748, 10.5666),
        (-0.6592, 0.5839, -0.4738, 10.7452),
    )
)
"""CATER's fixed camera, which is CLEVR's without its jitter."""


@dataclass(frozen=True)
class Scene:
    """Objects over time.

    Attributes:
        shape: [B,N] int64, an index of SHAPES; -1 pads.
        size: [B,N] float32, the half extent in the world: a sphere's radius, half a cube's edge, half a cylinder's
            height. A cone and the snitch ("spl") have the proportions of CATER's.
        material: [B,N] int64, an index of MATERIALS.
        colour: [B,N,3] float32 in [0, 1], linear light: COLOURS / 255.
        position: [B,T,N,3] float32, the shape's origin: the centre of a cube, sphere, cylinder or snitch resting at
            z = size (snitch: 0.342), and for a cone the point `cone_origin(size)` above its base.
        rotation: [B,T,N,3,3] float32, from the object's own frame to the world's.
        present: [B,T,N] bool: it exists (and has a whole mask).
        shown: [B,T,N] bool: it exists and is not inside another, so it is drawn, casts shadows and is reflected.
        lights: [B,3,3] float32, by how much the key, fill and back lamp are moved; None: not at all.
    """

    shape: Tensor
    size: Tensor
    material: Tensor
    colour: Tensor
    position: Tensor
    rotation: Tensor
    present: Tensor
    shown: Tensor
    lights: Tensor | None = None

    def _map(self, change: Callable[[Tensor], Tensor]) -> Scene:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        changed: dict[str, Any] = {name: value if value is None else change(value) for name, value in values.items()}
        return Scene(**changed)

    def to(self, device: torch.device | str) -> Scene:
        """The same scene on another device."""
        return self._map(lambda value: value.to(device))

    def __getitem__(self, entries: slice) -> Scene:
        """Some of the scenes."""
        return self._map(lambda value: value[entries])

    def during(self, frames: slice) -> Scene:
        """The same scenes in some of the frames."""
        return replace(
            self,
            position=self.position[:, frames],
            rotation=self.rotation[:, frames],
            present=self.present[:, frames],
            shown=self.shown[:, frames],
        )

    @property
    def length(self) -> int:
        """The number of frames."""
        return self.position.shape[1]


def cone_origin(size: float) -> float:
    """How far a cone's origin lies above its base; CATER's scene files give a cone's place by it."""
    return size + 0.1809476464986801


def euler(angles: Tensor) -> Tensor:
    """Rotations about x, then y, then z [..., 3] in radians, as matrices [..., 3, 3] from the object to the world."""
    (cx, cy, cz), (sx, sy, sz) = torch.cos(angles).unbind(-1), torch.sin(angles).unbind(-1)
    return torch.stack(
        (
            *(cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx),
            *(sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx),
            *(-sy, cy * sx, cy * cx),
        ),
        -1,
    ).unflatten(-1, (3, 3))
