"""A ray tracer for scenes of simple bodies on a floor: `render(scene, size)`.

The pipeline, for a stretch of frames of one scene at a time, so that memory stays bounded:

1. `render_bodies.cast`: the rays of every sample of the pixels around each body meet it (five shapes, `render_shapes`).
2. The nearest body at each sample covers it. A pixel belongs to a body that covers more than half of its samples.
3. `render_shade.floor_shadows`: what each lamp and the open sky give to the floor, past all bodies.
4. `render_shade.shade`: once for each body in each pixel: lamps with soft shadows, and on metal what it mirrors.
5. Floor and bodies are mixed by the samples they cover, in linear light, then encoded as sRGB.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from loci.kernels import render as kernels
from loci.worlds.render_bodies import Bodies, Candidates, cast, faces, tables
from loci.worlds.render_camera import Eye, open_eye
from loci.worlds.render_light import AMBIENT, Lamps, lamps, together
from loci.worlds.render_shade import Floor, Surface, floor_shadows, lay, shade
from loci.worlds.render_shapes import Vector, unit
from loci.worlds.scene import CATER_CAMERA, Camera, Scene

SAMPLES_AT_ONCE = 1_500_000
"""Samples in a stretch of frames: bounds the memory to some hundred bytes each."""

SHADOW_ROWS = 128
"""Frames with more rows have their floor's shadows, which are soft, computed on a grid of half the size."""


class Rendering(NamedTuple):
    """Pictures [B,T,3,H,W] and the empty floor [B,1,3,H,W], uint8, and masks [B,T,N,H,W] (see `Clip`)."""

    frames: Tensor
    background: Tensor
    visible: Tensor | None
    whole: Tensor | None


FOOTPRINT = 1.4
"""The width in pixels of what a pixel sees: like the filter CATER was rendered with, a little more than its square."""


def pattern(size: tuple[int, int], device: torch.device | str) -> Tensor:
    """Where the samples of a pixel lie, from its centre outwards [S,2]: one in each row and column of a fine grid.

    Nine for small frames, where an edge counts for much, five for others. Their number is odd: no ties.
    """
    order = (2, 5, 8, 1, 4, 7, 0, 3, 6) if size[0] <= SHADOW_ROWS else (1, 4, 2, 0, 3)
    count = len(order)
    grid = torch.tensor([((row + 0.5) / count - 0.5, (column + 0.5) / count - 0.5)
                         for row, column in enumerate(order)])  # fmt: skip
    return (FOOTPRINT * grid[grid.square().sum(1).sort(stable=True).indices]).to(device)


def render(
    scene: Scene,
    size: tuple[int, int],
    *,
    camera: Camera = CATER_CAMERA,
    labels: bool = True,
    fused: bool | None = None,
) -> Rendering:
    """Draw scenes.

    Args:
        scene: What there is to see; the pictures are made where its tensors are.
        size: Height and width of the frames.
        camera: From where; its aspect gives way to the frames'.
        labels: Also the masks.
        fused: By Triton kernels (`loci.kernels.render`); None: on a GPU if Triton is installed.
    """
    device = scene.position.device
    if kernels.available() and device.type == "cuda" if fused is None else fused:
        return _fused(scene, open_eye(camera, size, device), labels)
    height, width = size
    batch, objects = scene.shape.shape
    frames = torch.empty(batch, scene.length, 3, height, width, dtype=torch.uint8, device=device)
    backgrounds = torch.empty(batch, 1, 3, height, width, dtype=torch.uint8, device=device)
    shape = (batch, scene.length, objects, height, width)
    visible = torch.zeros(shape, dtype=torch.bool, device=device) if labels else None
    whole = torch.zeros(shape, dtype=torch.bool, device=device) if labels else None
    eye, offsets = open_eye(camera, size, device), pattern(size, device)
    stretch = max(1, SAMPLES_AT_ONCE // (height * width * len(offsets)))
    for entry in range(batch):
        one = scene[entry : entry + 1]
        light = lamps(None if one.lights is None else one.lights[0], device)
        fine, grid = lay(eye, light, size), lay(eye, light, shadow_grid(size))
        empty = together(light, fine.given) + torch.tensor(AMBIENT, device=device)
        backgrounds[entry, 0] = encode(empty).T.view(3, height, width)
        for first in range(0, scene.length, stretch):
            part = slice(first, first + stretch)
            picture, seen, covered = _draw(one.during(part), eye, light, fine, grid, offsets, labels)
            frames[entry, part] = picture
            if visible is not None and whole is not None:
                visible[entry, part], whole[entry, part] = seen, covered
    return Rendering(frames, backgrounds, visible, whole)


def shadow_grid(size: tuple[int, int]) -> tuple[int, int]:
    """The size of the grid on which the floor's shadows are computed."""
    return size if size[0] <= SHADOW_ROWS else ((size[0] + 1) // 2, (size[1] + 1) // 2)


def _fused(scene: Scene, eye: Eye, labels: bool) -> Rendering:
    """The same by kernels; the empty floor is one more frame, with nothing in it."""
    offsets, grid = pattern(eye.size, scene.position.device), shadow_grid(eye.size)
    one = scene.during(slice(0, 1))
    nothing = torch.zeros_like(one.shown)
    empty, _, _ = kernels.draw(replace(one, present=nothing, shown=nothing), eye, grid, offsets, labels=False)
    frames, visible, whole = kernels.draw(scene, eye, grid, offsets, labels)
    return Rendering(frames, empty, visible if labels else None, whole if labels else None)


def encode(light: Tensor) -> Tensor:
    """Linear light as 8-bit sRGB."""
    light = light.clamp(0, 1)
    power = torch.exp(torch.log(light.clamp(min=0.0031308)) / 2.4)
    curve = torch.where(light <= 0.0031308, 12.92 * light, 1.055 * power - 0.055)
    return (curve * 255 + 0.5).to(torch.uint8)


def _draw(
    scene: Scene, eye: Eye, light: Lamps, fine: Floor, grid: Floor, offsets: Tensor, labels: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Some frames of one scene: pictures [F,3,H,W], visible and whole masks [F,N,H,W] (empty without labels)."""
    frames, (height, width) = scene.length, eye.size
    samples, count = len(offsets), height * width
    bodies = tables(scene if labels else replace(scene, present=scene.shown))
    found = list(cast(bodies, eye, offsets))
    targets = [bodies.frame(item.which) * count + item.row * width + item.column for item in found]
    depth = torch.full((samples, frames * count), torch.inf, device=offsets.device)
    for item, target in zip(found, targets, strict=True):
        nearest = torch.where(bodies.shown[item.which], item.t, torch.inf)
        depth.scatter_reduce_(1, target.expand(samples, -1), nearest, "amin")
    free, open_ = floor_shadows(bodies, eye, light, grid, frames)
    floor = _floor_light(light, fine, grid, free, open_)
    masks = torch.zeros(2, len(bodies.kind) * count if labels else 0, dtype=torch.bool, device=depth.device)
    surfaces: list[tuple[Tensor, ...]] = []
    for item, target in zip(found, targets, strict=True):
        meets = torch.isfinite(item.t)
        first = meets & bodies.shown[item.which] & (item.t == depth[:, target])
        if labels:
            spot = item.which * count + item.row * width + item.column
            masks[0, spot] = 2 * first.sum(0) > samples
            masks[1, spot] = 2 * meets.sum(0) > samples
        for group in _groups(first, bodies.metal[item.which]):
            wins = group.sum(0)
            some = torch.nonzero(wins)[:, 0]
            surfaces.append((target[some], wins[some], *_surface(bodies, eye, item, offsets, some, group[:, some])))
    target, wins, which, *vectors = (torch.cat(parts) for parts in zip(*surfaces, strict=True))
    surface = Surface(_vector(vectors[:3]), _vector(vectors[3:6]), _vector(vectors[6:]), which, bodies.frame(which))
    colour = shade(bodies, eye, light, grid, free, open_, surface) - floor[target]
    picture = floor.index_add(0, target, (wins.to(torch.float32) / samples)[:, None] * colour)
    image = encode(picture).view(frames, count, 3).transpose(1, 2).reshape(frames, 3, height, width)
    seen, covered = masks.view(2, frames, -1, height, width) if labels else (masks[0], masks[1])
    return image, seen, covered


def _groups(first: Tensor, metal: Tensor) -> list[Tensor]:
    """Which samples [S,M] of a body in a pixel are shaded as one: all on rubber; on metal, which glitters, thirds."""
    third = torch.arange(len(first), device=first.device)[:, None] % 3
    return [first & torch.where(metal, third == number, number == 0) for number in range(3)]


def _vector(parts: list[Tensor]) -> Vector:
    return parts[0], parts[1], parts[2]


def _surface(
    bodies: Bodies, eye: Eye, item: Candidates, offsets: Tensor, some: Tensor, first: Tensor
) -> tuple[Tensor, ...]:
    """What stands for a body in a pixel: entry, point, face and line of sight at its sample closest to the centre."""
    height, width = eye.size
    sample = first.to(torch.uint8).argmax(0)
    which, t = item.which[some], item.t[sample, some]
    row = (2 * (item.row[some] + 0.5 + offsets[sample, 0]) / height) - 1
    column = (2 * (item.column[some] + 0.5 + offsets[sample, 1]) / width) - 1
    ray = eye.direction(row, column)
    point = (eye.centre[0] + t * ray[0], eye.centre[1] + t * ray[1], eye.centre[2] + t * ray[2])
    return (which, *point, *faces(bodies, item.kind, which, point), *unit(ray))


def _floor_light(light: Lamps, fine: Floor, grid: Floor, free: Tensor, open_: Tensor) -> Tensor:
    """The light [F·P,3] from the floor in all pixels, its shadows included."""
    lamps_count, frames = free.shape[:2]
    shares = torch.cat((free, open_[None])).view(-1, 1, *grid.size)
    if grid.size != fine.size:
        shares = functional.interpolate(shares, fine.size, mode="bilinear", align_corners=False)
    shares = shares.view(lamps_count + 1, frames, -1)
    result = torch.empty(frames, shares.shape[2], 3, device=free.device)
    for channel in range(3):
        total = shares[lamps_count] * AMBIENT[channel]
        for lamp in range(lamps_count):
            total += shares[lamp] * (fine.given[lamp] * light.energy[lamp, channel])
        result[..., channel] = total
    return result.view(-1, 3)
