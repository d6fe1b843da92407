"""Rigid discs and squares that slide and spin on a floor, and what happens when they meet.

Everything is seen from above: B scenes, N bodies, P = N(N-1)/2 pairs of them. A step is: impulses between bodies that
touch and approach, friction of the floor, motion. Impulses act equally and oppositely at one point, so they keep linear
and angular momentum; each is chosen such that energy cannot grow, also where a body has several contacts in one step.

Arithmetic is float64: collisions amplify rounding, and clips should agree between machines for as long as they can.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from loci.worlds.physics_contacts import TINY, Bodies, Contacts, Matter, contacts, cross, length, pairs, turn

GRAVITY = 9.81

_SLOP = 1e-3  # bodies may overlap by this much without being pushed apart
_PUSH = 0.3  # the share of the rest of an overlap that is undone per step
_REST = 0.05  # meeting slower than this, bodies do not bounce, and nobody speaks of a collision


class Motion(NamedTuple):
    """A simulated clip.

    Attributes:
        bodies: As `Bodies`, with time in dimension 1.
        there: [B,T,N] bool, has entered and not left.
        hit: [B,T,P] bool, the pair collided since the frame before.
    """

    bodies: Bodies
    there: Tensor
    hit: Tensor


@functools.cache
def _partners(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each body its N-1 pairs, and whether it is the second (+1) or the first (-1) of each; [N,N-1] each."""
    first, second = pairs(count, device)
    own = torch.arange(count, device=device)[:, None]
    part = (second == own).to(torch.int64) - (first == own).to(torch.int64)
    chosen = part.abs().argsort(dim=1, descending=True, stable=True)[:, : count - 1]
    return chosen, part.gather(1, chosen).to(torch.float64)


def _per_body(values: Tensor, count: int, signed: bool = True) -> Tensor:
    """Sum over each body's pairs, [B,P,...] to [B,N,...]; the first of a pair gets the negative if signed."""
    chosen, sign = _partners(count, values.device)
    gathered = values[:, chosen]
    if signed:
        gathered = gathered * sign.reshape(*sign.shape, *[1] * (values.dim() - 2))
    return gathered.sum(2)


def collide(bodies: Bodies, matter: Matter, there: Tensor, touch: Contacts) -> tuple[Bodies, Tensor]:
    """Impulses between bodies that touch and approach; the bodies after, and how fast each pair met, [B,P], else 0.

    A body with n contacts takes part in each with 1/n of its mass (mass splitting): the parts then move on together
    with their mean velocity, which keeps momentum and has no more energy than the parts had.
    """
    count = bodies.angle.shape[1]
    one, two = pairs(count, bodies.angle.device)
    normal = touch.normal
    tangent = torch.stack([-normal[..., 1], normal[..., 0]], -1)
    arm_one, arm_two = touch.point - bodies.position[:, one], touch.point - bodies.position[:, two]
    first = bodies.velocity[:, one] + turn(arm_one, bodies.spin[:, one])
    second = bodies.velocity[:, two] + turn(arm_two, bodies.spin[:, two])
    relative = second - first
    approach = -(relative * normal).sum(-1)
    overlap = (touch.depth > 0) & there[:, one] & there[:, two]
    active = overlap & (approach > 0)
    parts = _per_body(active.to(relative.dtype), count, signed=False).clamp_min(1)
    light, loose = parts / matter.mass, parts / matter.inertia  # inverse mass and inertia of a part

    def yields(one_way: Tensor, other_way: Tensor) -> Tensor:
        """How fast the point moves one way for a unit impulse the other way."""
        return (
            (light[:, one] + light[:, two]) * (one_way * other_way).sum(-1)
            + loose[:, one] * cross(arm_one, one_way) * cross(arm_one, other_way)
            + loose[:, two] * cross(arm_two, one_way) * cross(arm_two, other_way)
        )

    bounce = torch.where(approach > _REST, matter.bounce, 0.0)
    push = torch.where(active, (1 + bounce) * approach / yields(normal, normal), 0.0)
    # Friction acts on the sliding that is left after the push, and at most stops it.
    sliding = (relative * tangent).sum(-1) + push * yields(normal, tangent)
    drag = (-sliding / yields(tangent, tangent)).clamp(-matter.grip * push, matter.grip * push)
    impulse = push[..., None] * normal + drag[..., None] * tangent
    velocity = bodies.velocity + _per_body(impulse, count) / matter.mass[..., None]
    twist = torch.stack([cross(arm_one, impulse), cross(arm_two, impulse)], -1)
    spin = bodies.spin + _twist(twist, count) / matter.inertia
    apart = torch.where(overlap, (touch.depth - _SLOP).clamp_min(0) * _PUSH, 0.0) / (light[:, one] + light[:, two])
    position = bodies.position + _per_body(apart[..., None] * normal, count) / matter.mass[..., None]
    return Bodies(position, velocity, bodies.angle, spin), torch.where(active, approach, 0.0)


def _twist(twist: Tensor, count: int) -> Tensor:
    """Each body's sum of torques from its pairs: [B,P,2] (of the first, of the second) to [B,N]."""
    chosen, sign = _partners(count, twist.device)
    gathered = twist[:, chosen]
    return torch.where(sign < 0, -gathered[..., 0], gathered[..., 1]).sum(2)


def slide(bodies: Bodies, matter: Matter, there: Tensor, dt: float) -> Bodies:
    """The floor's friction, which stops but never turns round, then motion; bodies that are not there stay."""
    slowing = matter.friction * GRAVITY * dt
    speed = length(bodies.velocity).clamp_min(TINY)
    velocity = bodies.velocity * (1 - slowing / speed).clamp_min(0)[..., None]
    # An evenly loaded disc is turned back with two thirds of its radius as the lever; a square much alike.
    slower = slowing * matter.mass * matter.extent * (2 / 3) / matter.inertia
    spin = bodies.spin.sign() * (bodies.spin.abs() - slower).clamp_min(0)
    moving = there.to(velocity.dtype)
    velocity, spin = (
        torch.where(there[..., None], velocity, bodies.velocity),
        torch.where(there, spin, bodies.spin),
    )
    position = bodies.position + velocity * (moving * dt)[..., None]
    return Bodies(position, velocity, bodies.angle + spin * (moving * dt), spin)


def simulate(
    bodies: Bodies,
    matter: Matter,
    enter: Tensor,
    outside: Callable[[Tensor], Tensor],
    frames: int,
    rate: float,
    substeps: int,
) -> Motion:
    """Run a clip.

    Args:
        bodies: At the start; those that enter later wait with the velocity they will enter with.
        matter: What they are.
        enter: [B,N] int64, the frame in which each enters.
        outside: Positions [B,N,2] to whether a body there is out of sight. Who was inside and gets there has left.
        frames: How many.
        rate: Frames per second.
        substeps: Steps per frame.
    """
    there = enter <= 0
    seen, gone = torch.zeros_like(there), torch.zeros_like(there)
    count = bodies.angle.shape[1]
    hit = torch.zeros(len(there), count * (count - 1) // 2, dtype=torch.bool, device=there.device)
    track: list[tuple[Tensor, ...]] = []
    for frame in range(frames):
        out = outside(bodies.position)
        gone = gone | (seen & out)
        there = (enter <= frame) & ~gone
        seen = seen | (there & ~out)
        track.append((*bodies, there, hit))
        hit = torch.zeros_like(hit)
        for _ in range(substeps):
            bodies, met = collide(bodies, matter, there, contacts(bodies, matter))
            bodies = slide(bodies, matter, there, 1 / (rate * substeps))
            hit = hit | (met > _REST)
    columns = [torch.stack(column, 1) for column in zip(*track, strict=True)]
    return Motion(Bodies(*columns[:4]), columns[4], columns[5])
