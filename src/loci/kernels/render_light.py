# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
# ruff: noqa: ANN001, ANN201 -- Triton reads annotations of arguments as values: only constexpr may be annotated.
"""Lamps, shadows and mirrors inside Triton kernels: `loci.worlds.render_light` and `render_bodies` for blocks.

Imported only where Triton is installed. The tables are those of `loci.kernels.render_tables`: of a body `FIELDS`
numbers, of a lamp eight. All points of a block lie in one frame, so bodies and lamps are read as scalars, and a body
that is near none of the block's points is passed over.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from loci.kernels.render_shapes import FAR, NEARER, clamp, dot, entry, normal, passing
from loci.kernels.render_tables import FIELDS as _FIELDS
from loci.kernels.render_tables import LAMP_FIELDS as _LAMP_FIELDS
from loci.worlds import render_light as light
from loci.worlds import render_shade as look

FIELDS = tl.constexpr(_FIELDS)
LAMP_FIELDS = tl.constexpr(_LAMP_FIELDS)
LAMPS = tl.constexpr(len(light.RADII))
RED = tl.constexpr(light.AMBIENT[0])
GREEN = tl.constexpr(light.AMBIENT[1])
BLUE = tl.constexpr(light.AMBIENT[2])
FLOOR = tl.constexpr(look.FLOOR)
_BOUNCE = tl.constexpr(look.BOUNCE)
_GLOSS_METAL = tl.constexpr(look.METAL_GLOSS * look.METAL_SHINE)
_SHINE_METAL = tl.constexpr(look.METAL_SHINE)
_GLOW_METAL = tl.constexpr(look.METAL_GLOW * look.METAL_HALO)
_HALO_METAL = tl.constexpr(look.METAL_HALO)
_GLOSS_RUBBER = tl.constexpr(look.RUBBER_GLOSS * look.RUBBER_SHINE)
_SHINE_RUBBER = tl.constexpr(look.RUBBER_SHINE)
_EXP = tl.constexpr(1 / math.log(2.0))


@triton.jit
def inward(body, x, y, z):
    """A world direction in the frame and units of a body."""
    scale = tl.load(body + 13)
    a = (tl.load(body + 3) * x + tl.load(body + 6) * y + tl.load(body + 9) * z) * scale
    b = (tl.load(body + 4) * x + tl.load(body + 7) * y + tl.load(body + 10) * z) * scale
    c = (tl.load(body + 5) * x + tl.load(body + 8) * y + tl.load(body + 11) * z) * scale
    return a, b, c


@triton.jit
def outward(body, x, y, z):
    """A direction in a body's frame, in the world (not scaled)."""
    a = tl.load(body + 3) * x + tl.load(body + 4) * y + tl.load(body + 5) * z
    b = tl.load(body + 6) * x + tl.load(body + 7) * y + tl.load(body + 8) * z
    c = tl.load(body + 9) * x + tl.load(body + 10) * y + tl.load(body + 11) * z
    return a, b, c


@triton.jit
def face(body, x, y, z):
    """Where a body's surface faces at world points on it."""
    kind = tl.load(body + 15).to(tl.int32)
    a, b, c = inward(body, x - tl.load(body), y - tl.load(body + 1), z - tl.load(body + 2))
    a, b, c = normal(kind, a, b, c)
    return outward(body, a, b, c)


@triton.jit
def received(lamp, x, y, z, nx, ny, nz):
    """What a lamp gives to surfaces at points facing n, per unit of its energy, were nothing in between."""
    px, py, pz = tl.load(lamp), tl.load(lamp + 1), tl.load(lamp + 2)
    tx, ty, tz = px - x, py - y, pz - z
    squared = dot(tx, ty, tz, tx, ty, tz)
    facing = tl.maximum(dot(px, py, pz, tx, ty, tz), 0.0) / tl.sqrt(dot(px, py, pz, px, py, pz))
    return tl.maximum(dot(nx, ny, nz, tx, ty, tz), 0.0) * facing / (squared * squared)


@triton.jit
def unshadowed(bodies, objects, own, lamp, x, y, z, lit):
    """The share of a lamp that reaches the points of a block past all bodies but their own.

    Points that are not `lit` need no answer.
    """
    tx, ty, tz = tl.load(lamp) - x, tl.load(lamp + 1) - y, tl.load(lamp + 2) - z
    radius = tl.load(lamp + 6)
    squared = dot(tx, ty, tz, tx, ty, tz)
    free = squared * 0.0 + 1.0
    for n in range(objects):
        body = bodies + n * FIELDS
        if (tl.load(body + 21) > 0) & (n != own):
            ox, oy, oz = x - tl.load(body), y - tl.load(body + 1), z - tl.load(body + 2)
            share = clamp(-dot(ox, oy, oz, tx, ty, tz) / squared, 1e-3, 1.0)
            mx, my, mz = ox + share * tx, oy + share * ty, oz + share * tz
            reach = tl.load(body + 14) + radius * share
            near = lit & (dot(mx, my, mz, mx, my, mz) < reach * reach)
            if tl.max(near.to(tl.int32)) > 0:
                kind = tl.load(body + 15).to(tl.int32)
                ax, ay, az = inward(body, ox, oy, oz)
                bx, by, bz = inward(body, tx, ty, tz)
                passes = passing(kind, ax, ay, az, bx, by, bz, tl.load(body + 12), radius)
                free = tl.where(near, free * passes, free)
    return free


@triton.jit
def surround(nz):
    """How much of the light from everywhere a surface gets: the sky above, less from the floor below."""
    up = 0.5 + 0.5 * nz
    return up + (1 - up) * _BOUNCE


@triton.jit
def glint(lamp, x, y, z, rx, ry, rz, metal):
    """How much of a lamp a mirrored ray shows: on metal a sharp glint in a wide halo, on rubber a sheen."""
    tx, ty, tz = tl.load(lamp) - x, tl.load(lamp + 1) - y, tl.load(lamp + 2) - z
    squared = dot(tx, ty, tz, tx, ty, tz)
    off = (dot(tx, ty, tz, rx, ry, rz) / tl.sqrt(squared) - 1) * _EXP
    if metal:
        shine = tl.exp2(off * _SHINE_METAL) * _GLOSS_METAL + tl.exp2(off * _HALO_METAL) * _GLOW_METAL
    else:
        shine = tl.exp2(off * _SHINE_RUBBER) * _GLOSS_RUBBER
    return shine / (2 * squared)


@triton.jit
def reflected(bodies, objects, own, lamps, x, y, z, rx, ry, rz, wanted):
    """What rays that meet another body see of it: whether they meet one, and the light it sends (no shadows on it)."""
    nearest = x * 0.0 + FAR
    red, green, blue = x * 0.0, x * 0.0, x * 0.0
    for n in range(objects):
        body = bodies + n * FIELDS
        if (tl.load(body + 21) > 0) & (n != own):
            ox, oy, oz = x - tl.load(body), y - tl.load(body + 1), z - tl.load(body + 2)
            ahead = tl.maximum(-dot(ox, oy, oz, rx, ry, rz), 0.0)
            past = dot(ox, oy, oz, ox, oy, oz) - ahead * ahead
            bound = tl.load(body + 14)
            near = wanted & (ahead > 0) & (past < bound * bound)
            if tl.max(near.to(tl.int32)) > 0:
                kind = tl.load(body + 15).to(tl.int32)
                ax, ay, az = inward(body, ox, oy, oz)
                bx, by, bz = inward(body, rx, ry, rz)
                t = tl.where(near, entry(kind, ax, ay, az, bx, by, bz), FAR)
                better = t < nearest
                if tl.max(better.to(tl.int32)) > 0:
                    nearest = tl.where(better, t, nearest)
                    t = tl.where(better, t, 0.0)
                    px, py, pz = x + t * rx, y + t * ry, z + t * rz
                    nx, ny, nz = face(body, px, py, pz)
                    up = surround(nz)
                    r, g, b = up * RED, up * GREEN, up * BLUE
                    for number in range(LAMPS):
                        lamp = lamps + number * LAMP_FIELDS
                        given = received(lamp, px, py, pz, nx, ny, nz)
                        r += given * tl.load(lamp + 3)
                        g += given * tl.load(lamp + 4)
                        b += given * tl.load(lamp + 5)
                    dull = tl.where(tl.load(body + 16) > 0, 0.6, 1.0) / FLOOR
                    red = tl.where(better, r * dull * tl.load(body + 17), red)
                    green = tl.where(better, g * dull * tl.load(body + 18), green)
                    blue = tl.where(better, b * dull * tl.load(body + 19), blue)
    return nearest < NEARER, red, green, blue
