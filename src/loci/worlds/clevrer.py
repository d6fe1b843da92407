"""CLEVRER's content: bodies enter, slide, collide and leave, drawn by the renderer that also draws CATER."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loci import random
from loci.data.clip import ABSENT, EVENTS, OCCLUDED, VISIBLE, Clip
from loci.data.source import Split
from loci.worlds import clevrer_script as script
from loci.worlds import scene as look
from loci.worlds.areas import area
from loci.worlds.arguments import check
from loci.worlds.physics import Motion
from loci.worlds.physics_contacts import pairs
from loci.worlds.render import render
from loci.worlds.render_shapes import CYLINDER_HALF
from loci.worlds.scene import CATER_CAMERA, Scene, euler

_HIDDEN = 0.05  # the share below which a body counts as occluded
_COLLISIONS = 32  # as many are told per clip
_LULL = 5  # frames without a touch after which the next touch is another collision


@dataclass(frozen=True)
class Clevrer:
    """Three to six bodies, no two alike: one to three rest, the others enter from the sides, meet and leave.

    Bodies are cubes, balls and cylinders of one size, of rubber or metal, in eight colours. They slide on a floor with
    friction, spin about the vertical and collide as rigid bodies of equal mass do (`physics`).

    A body is ABSENT before it enters and after it has left. Events: "enter" and "leave" in the frame in which it comes
    into sight or is gone, "collision" in the first frame after two bodies touched; a touch within five frames of the
    last one of the same pair is no new collision.
    """

    split: Split = "train"
    seed: int = 0
    size: tuple[int, int] = (320, 480)
    length: int = 128

    def __post_init__(self) -> None:
        check(self.split, self.size, self.length, 16)

    def __len__(self) -> int:
        return 2**31

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """What a body looks like."""
        return {"shape": script.SHAPES, "material": script.MATERIALS, "colour": script.COLOURS}

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order."""
        index = torch.tensor(list(indices), dtype=torch.int64)
        # The story is told on the host: a GPU gains nothing on hundreds of small steps one after another, and its
        # rounding would, after some collisions, tell another story.
        cast, _, motion = script.play(self._keys(index), self.length)
        world = _world(cast, motion)
        drawn = render(_scene(cast, motion, world).to(device), self.size, labels=labels)
        if drawn.visible is None or drawn.whole is None:
            return Clip(drawn.frames, drawn.background, index=index.to(device))
        covered = area(drawn.whole)
        share = area(drawn.visible) / covered.clamp_min(1)
        there = motion.there.to(device)
        state = torch.where(share < _HIDDEN, OCCLUDED, VISIBLE).where(there, ABSENT).to(torch.uint8)
        looks = {"shape": cast.shape, "material": cast.material, "colour": cast.colour}
        return Clip(
            drawn.frames,
            drawn.background,
            visible=drawn.visible,
            whole=drawn.whole,
            position=self._on_screen(world).to(device),
            world=world.to(device),
            share=share,
            state=state,
            container=torch.full_like(covered, -1),
            events=_events(cast, motion).to(device),
            attributes={name: value.to(device) for name, value in looks.items()},
            index=index.to(device),
        )

    def annotations(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """What CLEVRER's annotation files say of these clips, computed on the CPU."""
        cast, _, motion = script.play(self._keys(torch.tensor(list(indices), dtype=torch.int64)), self.length)
        world, events = _world(cast, motion), _events(cast, motion)
        return [_annotation(cast, motion, world, events, entry) for entry in range(len(world))]

    def _keys(self, index: Tensor) -> Tensor:
        return random.key("clevrer", self.seed, self.split, index)

    def _on_screen(self, world: Tensor) -> Tensor:
        """Rows and columns of places in the world, from a camera whose -1 and 1 are the frame's outer edges."""
        height, width = self.size
        seen = CATER_CAMERA.seen_in(self.size).project(world)
        return seen * seen.new_tensor([height / (height - 1), width / (width - 1)])


def _world(cast: script.Cast, motion: Motion) -> Tensor:
    """The bodies' centres, [B,T,N,3] float32."""
    lies = cast.shape == script.SHAPES.index("cylinder")
    height = torch.where(lies, CYLINDER_HALF * script.SIZE, script.SIZE)[:, None, :, None]
    flat = motion.bodies.position
    return torch.cat([flat, height.to(flat.dtype).expand(*flat.shape[:-1], 1)], -1).float()


def _scene(cast: script.Cast, motion: Motion, world: Tensor) -> Scene:
    device = world.device
    shapes = torch.tensor([look.SHAPES.index(name) for name in script.SHAPES], device=device)
    materials = torch.tensor([look.MATERIALS.index(name) for name in script.MATERIALS], device=device)
    colours = torch.tensor([look.COLOURS[name] for name in script.COLOURS], device=device) / 255
    turned = torch.stack([torch.zeros_like(motion.bodies.angle)] * 2 + [motion.bodies.angle], -1)
    return Scene(
        shape=torch.where(cast.shape >= 0, shapes[cast.shape.clamp_min(0)], -1),
        size=torch.full(cast.shape.shape, script.SIZE, device=device),
        material=materials[cast.material.clamp_min(0)],
        colour=colours[cast.colour.clamp_min(0)],
        position=world,
        rotation=euler(turned).float(),
        present=motion.there,
        shown=motion.there,
    )


def _events(cast: script.Cast, motion: Motion) -> Tensor:
    """Enter and leave of every body, then collisions in order of time, [B,E,5]; the same E for all."""
    frames, bodies = motion.there.shape[1:]
    device = motion.there.device
    number = torch.arange(bodies, device=device).expand(len(motion.there), -1)

    def rows(kind: str, frame: Tensor, one: Tensor, two: Tensor, told: Tensor) -> Tensor:
        columns = (torch.full_like(frame, EVENTS.index(kind)), frame, frame, one, two)
        return torch.stack(columns, -1).masked_fill(~told[..., None], -1)

    nobody = torch.full_like(number, -1)
    seen = motion.there & ~script.out_of_sight(motion.bodies.position)
    entered = rows("enter", seen.to(torch.uint8).argmax(1), number, nobody, seen.any(1) & ~cast.rests)
    gone = (motion.there[:, :-1] & ~motion.there[:, 1:]) if frames > 1 else motion.there[:, :0]
    gone = torch.cat([torch.zeros_like(motion.there[:, :1]), gone], 1)
    left = rows("leave", gone.to(torch.uint8).argmax(1), number, nobody, gone.any(1))
    first, second = pairs(bodies, device)
    when = torch.arange(frames * len(first), device=device)
    new = _fresh(motion.hit).flatten(1)
    order = torch.where(new, when, len(when)).sort(1).values[:, :_COLLISIONS]
    told = order < len(when)
    kept = order.clamp_max(len(when) - 1)
    pair = kept % len(first)
    met = rows("collision", kept // len(first), first[pair], second[pair], told)
    return torch.cat([entered, left, met], 1)


def _fresh(hit: Tensor) -> Tensor:
    """Touches [B,T,P] before which the pair did not touch for a while."""
    before = torch.zeros_like(hit)
    for lag in range(1, min(_LULL + 1, hit.shape[1])):
        before[:, lag:] |= hit[:, :-lag]
    return hit & ~before


def _annotation(cast: script.Cast, motion: Motion, world: Tensor, events: Tensor, entry: int) -> dict[str, Any]:
    bodies = [n for n, shape in enumerate(cast.shape[entry].tolist()) if shape >= 0]
    moving = motion.there[entry, ..., None] * motion.bodies.velocity[entry]
    inside = motion.there[entry] & ~script.out_of_sight(motion.bodies.position[entry])
    place, speed, there = world[entry].tolist(), moving.tolist(), inside.tolist()
    angle, spin = motion.bodies.angle[entry].tolist(), (motion.there[entry] * motion.bodies.spin[entry]).tolist()
    return {
        "object_property": [
            {
                "object_id": n,
                "color": script.COLOURS[int(cast.colour[entry, n])],
                "material": script.MATERIALS[int(cast.material[entry, n])],
                "shape": script.SHAPES[int(cast.shape[entry, n])],
            }
            for n in bodies
        ],
        "motion_trajectory": [
            {
                "frame_id": t,
                "objects": [
                    {
                        "object_id": n,
                        "location": place[t][n],
                        "orientation": [0.0, 0.0, angle[t][n]],
                        "velocity": [*speed[t][n], 0.0],
                        "angular_velocity": [0.0, 0.0, spin[t][n]],
                        "inside_camera_view": there[t][n],
                    }
                    for n in bodies
                ],
            }
            for t in range(len(place))
        ],
        "collision": [
            {
                "frame_id": first,
                "object_ids": [one, two],
                "location": [(a + b) / 2 for a, b in zip(place[first][one], place[first][two], strict=True)],
            }
            for kind, first, _, one, two in events[entry].tolist()
            if kind == EVENTS.index("collision")
        ],
    }
