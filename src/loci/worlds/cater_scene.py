"""A CATER script as CATER's own JSON, as bodies to draw, and as the truth about who is hidden where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loci.data.clip import EVENTS
from loci.errors import UserError
from loci.worlds.cater_script import Move, Script, Thing
from loci.worlds.scene import CATER_CAMERA, COLOURS, MATERIALS, SHAPES, Scene, euler

QUARTER = 3.14 / 2
"""The turn of one `_rotate`, about the body's own level axis: CATER's scripts round pi."""

DIRECTIONS: dict[str, tuple[float, float, float]] = {
    "behind": (-0.7485672450147971, 0.6630588810135618, 0.0),
    "front": (0.7485672450147971, -0.6630588810135618, 0.0),
    "left": (-0.66299791581371, -0.7486212417682767, 0.0),
    "right": (0.66299791581371, 0.7486212417682767, 0.0),
    "above": (0.0, 0.0, 1.0),
    "below": (0.0, 0.0, -1.0),
}
"""What CATER's files call the directions seen from its camera."""


def to_json(script: Script, index: int, size: tuple[int, int] = (240, 320)) -> dict[str, Any]:
    """The scene as a CATER file has it; `pixel_coords` are for frames of this size."""
    first = script.places[:, 0]
    screen = CATER_CAMERA.project(torch.from_numpy(first)).numpy()
    depth = first @ np.array(CATER_CAMERA.matrix[3][:3]) + CATER_CAMERA.matrix[3][3]
    names = [thing.instance for thing in script.things]
    objects = [
        {
            "shape": thing.shape,
            "size": thing.size,
            "sized": thing.sized,
            "material": thing.material,
            "3d_coords": first[n].tolist(),
            "rotation": thing.rotation,
            "pixel_coords": [
                int((screen[n, 1] + 1) / 2 * size[1]),
                int((screen[n, 0] + 1) / 2 * size[0]),
                float(depth[n]),
            ],
            "color": thing.colour,
            "instance": thing.instance,
            "locations": {str(t): place for t, place in enumerate(script.places[n].tolist())},
        }
        for n, thing in enumerate(script.things)
    ]
    movements = {
        name: [[m.kind, None if m.other is None else names[m.other], m.start, m.end] for m in moves]
        for name, moves in zip(names, script.moves, strict=True)
    }
    return {
        "split": "new",
        "image_index": index,
        "image_filename": f"CATER_new_{index:06d}.avi",
        "objects": objects,
        "directions": {name: list(direction) for name, direction in DIRECTIONS.items()},
        "relationships": _relationships(first),
        "movements": movements,
    }


def _relationships(places: NDArray[np.float64]) -> dict[str, list[list[int]]]:
    """For each level direction and object, which others lie that way by more than 0.2."""
    apart = places[None] - places[:, None]
    return {
        name: [
            [other for other in range(len(places)) if other != n and float(apart[n, other] @ np.array(direction)) > 0.2]
            for n in range(len(places))
        ]
        for name, direction in DIRECTIONS.items()
        if direction[2] == 0
    }


def from_json(scene: dict[str, Any]) -> Script:
    """The script in a CATER file; raises UserError where it lacks what a picture needs."""
    try:
        objects = scene["objects"]
        things = tuple(
            Thing(
                o["shape"], o["size"], float(o["sized"]), o["material"], o["color"], float(o["rotation"]), o["instance"]
            )
            for o in objects
        )
        places = np.array([[o["locations"][str(t)] for t in range(len(o["locations"]))] for o in objects], np.float64)
        number = {thing.instance: n for n, thing in enumerate(things)}
        moves = tuple(
            tuple(
                Move(kind, None if other is None else number[other], int(start), int(end))
                for kind, other, start, end in scene["movements"].get(thing.instance, [])
            )
            for thing in things
        )
    except KeyError as missing:
        raise UserError(
            f"{scene.get('image_filename', 'a scene')} has no {missing}; a CATER scene names shape, size, sized, "
            "material, color, rotation, instance and locations of each object, and movements; take those of all_actions"
        ) from missing
    return Script(things, places, moves)


def holders(script: Script) -> NDArray[np.int64]:
    """The object [T,N] that directly holds each, or -1: from a `_contain`'s end until that cone's next pick-place."""
    count, frames = script.places.shape[:2]
    held = np.full((frames, count), -1, np.int64)
    for cone, moves in enumerate(script.moves):
        for turn, move in enumerate(moves):
            if move.kind == "_contain" and move.other is not None:
                leaving = (m.start for m in moves[turn + 1 :] if m.kind in ("_pick_place", "_contain"))
                held[move.end : next(leaving, frames), move.other] = cone
    return held


def carried(script: Script, held: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each [T,N] is held and has just moved."""
    moved = np.zeros(held.shape, bool)
    moved[1:] = np.any(script.places[:, 1:] != script.places[:, :-1], -1).T
    return moved & (held >= 0)


def tilts(script: Script) -> NDArray[np.float64]:
    """How far each [T,N] has been turned by its `_rotate`s, which add up."""
    count, frames = script.places.shape[:2]
    time = np.arange(frames, dtype=np.float64)[:, None]
    turned = np.zeros((frames, count))
    for n, moves in enumerate(script.moves):
        for move in moves:
            if move.kind == "_rotate":
                turned[:, n] += np.clip((time[:, 0] - move.start) / (move.end - move.start), 0, 1) * QUARTER
    return turned


def draw(scripts: Sequence[Script], device: torch.device | str = "cpu", lights: Tensor | None = None) -> Scene:
    """The bodies of some clips of one length, ready for `render`."""
    batch, frames = len(scripts), scripts[0].places.shape[1]
    most = max(len(script.things) for script in scripts)
    shape = torch.full((batch, most), -1)
    material = torch.zeros(batch, most, dtype=torch.int64)
    size, colour = torch.ones(batch, most), torch.zeros(batch, most, 3)
    position, angles = torch.zeros(batch, frames, most, 3), torch.zeros(batch, frames, most, 3)
    present = torch.zeros(batch, frames, most, dtype=torch.bool)
    shown = present.clone()
    for b, script in enumerate(scripts):
        things = script.things
        n = len(things)
        shape[b, :n] = torch.tensor([SHAPES.index(thing.shape) for thing in things])
        material[b, :n] = torch.tensor([MATERIALS.index(thing.material) for thing in things])
        size[b, :n] = torch.tensor([thing.sized for thing in things])
        colour[b, :n] = torch.tensor([COLOURS[thing.colour] for thing in things]) / 255
        position[b, :, :n] = torch.from_numpy(script.places.swapaxes(0, 1))
        angles[b, :, :n, 1] = torch.from_numpy(tilts(script))
        # CLEVR writes degrees where Blender reads radians.
        angles[b, :, :n, 2] = torch.tensor([thing.rotation for thing in things])
        present[b, :, :n] = True
        shown[b, :, :n] = torch.from_numpy(holders(script) < 0)
    scene = Scene(shape, size, material, colour, position, angles, present, shown, lights).to(device)
    return replace(scene, rotation=euler(scene.rotation))


def events(script: Script, frames: int) -> list[tuple[int, int, int, int, int]]:
    """The moves that begin within these frames, as rows of `Clip.events`, by their beginning."""
    rows = [
        (
            move.start,
            EVENTS.index(move.kind[1:]),
            min(move.end, frames - 1),
            n,
            -1 if move.other is None else move.other,
        )
        for n, moves in enumerate(script.moves)
        for move in moves
        if move.start < frames
    ]
    return [(kind, start, end, n, other) for start, kind, end, n, other in sorted(rows)]
