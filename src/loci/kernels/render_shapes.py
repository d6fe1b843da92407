# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
# ruff: noqa: ANN001, ANN201, ANN202 -- Triton reads annotations of arguments as values: only constexpr may be annotated.
"""The five shapes inside Triton kernels: the functions of `loci.worlds.render_shapes` under the same names.

Imported only where Triton is installed. A miss has t = FAR instead of infinity, and a root that does not exist is
told by the sign under it: no arithmetic here makes a nan on purpose. Functions take a shape as a compile-time number,
or, where they take `kind`, as a scalar on which a whole block of pixels branches alike.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from loci.worlds import render_light as light
from loci.worlds import render_shapes as shapes

FAR = tl.constexpr(1e9)
NEARER = tl.constexpr(1e8)
"""What is below it was met."""

CUBE = tl.constexpr(shapes.CUBE)
SPHERE = tl.constexpr(shapes.SPHERE)
CYLINDER = tl.constexpr(shapes.CYLINDER)
CONE = tl.constexpr(shapes.CONE)
SPL = tl.constexpr(shapes.SPL)
_CUBE_BOUND = tl.constexpr(shapes.BOUNDS[shapes.CUBE])
_CYLINDER_BOUND = tl.constexpr(shapes.BOUNDS[shapes.CYLINDER])
_CONE_BOUND = tl.constexpr(shapes.BOUNDS[shapes.CONE])
_SPL_BOUND = tl.constexpr(shapes.BOUNDS[shapes.SPL])
_CUBE_INNER = tl.constexpr(shapes.CUBE_HALF - shapes.CUBE_ROUNDING)
_CUBE_ROUNDING = tl.constexpr(shapes.CUBE_ROUNDING)
_CYLINDER_RADIUS = tl.constexpr(shapes.CYLINDER_RADIUS - shapes.CYLINDER_ROUNDING)
_CYLINDER_HALF = tl.constexpr(shapes.CYLINDER_HALF - shapes.CYLINDER_ROUNDING)
_CYLINDER_ROUNDING = tl.constexpr(shapes.CYLINDER_ROUNDING)
_SLOPE = tl.constexpr(1 / math.sqrt(5.0))
_SIDE = tl.constexpr(2 * math.pi / shapes.CONE_SIDES)
_RING = tl.constexpr(shapes.RING)
_TUBE = tl.constexpr(shapes.TUBE)
_PI = tl.constexpr(math.pi)
_GOLDEN = tl.constexpr(light.GOLDEN)


@triton.jit
def dot(ax, ay, az, bx, by, bz):
    """The inner product."""
    return ax * bx + ay * by + az * bz


@triton.jit
def unit(x, y, z):
    """The same direction with length 1."""
    scale = 1 / tl.sqrt(tl.maximum(x * x + y * y + z * z, 1e-20))
    return x * scale, y * scale, z * scale


@triton.jit
def clamp(x, low, high):
    """Not less than low, not more than high."""
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit
def distance(x, y, z, SHAPE: tl.constexpr):
    """The signed distance of points from the surface of a shape."""
    if SHAPE == CUBE:
        qx, qy, qz = tl.abs(x) - _CUBE_INNER, tl.abs(y) - _CUBE_INNER, tl.abs(z) - _CUBE_INNER
        ox, oy, oz = tl.maximum(qx, 0.0), tl.maximum(qy, 0.0), tl.maximum(qz, 0.0)
        inside = tl.minimum(tl.maximum(tl.maximum(qx, qy), qz), 0.0)
        result = tl.sqrt(ox * ox + oy * oy + oz * oz) + inside - _CUBE_ROUNDING
    elif SHAPE == CYLINDER:
        radial = tl.sqrt(x * x + y * y) - _CYLINDER_RADIUS
        axial = tl.abs(z) - _CYLINDER_HALF
        out, up = tl.maximum(radial, 0.0), tl.maximum(axial, 0.0)
        result = tl.sqrt(out * out + up * up) + tl.minimum(tl.maximum(radial, axial), 0.0) - _CYLINDER_ROUNDING
    elif SHAPE == CONE:
        result = tl.maximum((2 * tl.sqrt(x * x + y * y) + z - 1) * _SLOPE, -1 - z)
    elif SHAPE == SPL:
        xx, yy, zz = x * x, y * y, z * z
        first, second, third = tl.sqrt(xx + yy) - _RING, tl.sqrt(yy + zz) - _RING, tl.sqrt(zz + xx) - _RING
        nearest = tl.minimum(tl.minimum(first * first + zz, second * second + xx), third * third + yy)
        result = tl.sqrt(nearest) - _TUBE
    else:
        result = tl.sqrt(x * x + y * y + z * z) - 1
    return result


@triton.jit
def _ball(ox, oy, oz, dx, dy, dz, radius):
    """Where rays enter and leave a ball, and whether they touch it at all."""
    a, b = dot(dx, dy, dz, dx, dy, dz), dot(ox, oy, oz, dx, dy, dz)
    under = b * b - a * (dot(ox, oy, oz, ox, oy, oz) - radius * radius)
    root = tl.sqrt(tl.maximum(under, 0.0))
    return (-b - root) / a, (-b + root) / a, under >= 0


@triton.jit
def _descend(ox, oy, oz, dx, dy, dz, radius, SHAPE: tl.constexpr):
    """The surface of a convex body by secants (`render_shapes._descend`)."""
    enter, leave, touch = _ball(ox, oy, oz, dx, dy, dz, radius)
    before = tl.maximum(enter, 0.0)
    gap_before = distance(ox + before * dx, oy + before * dy, oz + before * dz, SHAPE)
    t = before + tl.maximum(gap_before, 1e-4) / tl.sqrt(dot(dx, dy, dz, dx, dy, dz))
    gap = distance(ox + t * dx, oy + t * dy, oz + t * dz, SHAPE)
    for _ in range(5):
        slope = (gap - gap_before) / (t - before)
        ahead = tl.where(slope < -1e-6, t - gap / slope, FAR)
        ahead = tl.where(gap > 1e-4, ahead, t + 1e-4)
        before, gap_before, t = t, gap, tl.minimum(ahead, FAR)
        gap = distance(ox + t * dx, oy + t * dy, oz + t * dz, SHAPE)
    return tl.where(touch & (gap < 0.02) & (t < leave), t, FAR)


@triton.jit
def _march(ox, oy, oz, dx, dy, dz):
    """The surface of the snitch, step by step."""
    enter, leave, touch = _ball(ox, oy, oz, dx, dy, dz, _SPL_BOUND)
    speed = 1 / tl.sqrt(dot(dx, dy, dz, dx, dy, dz))
    t = tl.maximum(enter, 0.0)
    gap = t
    for _ in range(32):
        gap = distance(ox + t * dx, oy + t * dy, oz + t * dz, SPL)
        t += tl.where(gap < 0.02, 0.0, tl.maximum(gap, 0.03)) * speed
    return tl.where(touch & (gap < 0.02) & (t < leave), t, FAR)


@triton.jit
def _cone_entry(ox, oy, oz, dx, dy, dz):
    rise, fall = (1 - oz) / 2, -dz / 2
    a = dx * dx + dy * dy - fall * fall
    b = ox * dx + oy * dy - rise * fall
    under = b * b - a * (ox * ox + oy * oy - rise * rise)
    root = tl.sqrt(tl.maximum(under, 0.0))
    first, second = (-b - root) / a, (-b + root) / a
    on_first = (under >= 0) & (first > 0) & (tl.abs(oz + first * dz) < 1)
    on_second = (under >= 0) & (second > 0) & (tl.abs(oz + second * dz) < 1)
    result = tl.minimum(tl.where(on_first, first, FAR), tl.where(on_second, second, FAR))
    base = (-1 - oz) / dz
    x, y = ox + base * dx, oy + base * dy
    return tl.where((base > 0) & (x * x + y * y < 1), tl.minimum(result, base), result)


@triton.jit
def entry(kind, ox, oy, oz, dx, dy, dz):
    """The t > 0 at which rays first meet a shape, FAR where they do not."""
    if kind == SPHERE:
        enter, _, touch = _ball(ox, oy, oz, dx, dy, dz, 1.0)
        t = tl.where(touch & (enter > 0), enter, FAR)
    elif kind == CONE:
        t = _cone_entry(ox, oy, oz, dx, dy, dz)
    elif kind == SPL:
        t = _march(ox, oy, oz, dx, dy, dz)
    elif kind == CUBE:
        t = _descend(ox, oy, oz, dx, dy, dz, _CUBE_BOUND, CUBE)
    else:
        t = _descend(ox, oy, oz, dx, dy, dz, _CYLINDER_BOUND, CYLINDER)
    return t


@triton.jit
def _angle(y, x):
    """atan2, which Triton has only in a library its interpreter lacks.

    An odd polynomial for the arc tangent on [0, 1], fitted by least squares at Chebyshev's points: 3e-7 off at most.
    """
    wide, high = tl.abs(x), tl.abs(y)
    slope = tl.minimum(wide, high) / tl.maximum(tl.maximum(wide, high), 1e-20)
    q = slope * slope
    turn = 0.0789998337 + q * (-0.0331052509 + q * 0.0066582896)
    turn = slope * (0.9999956234 + q * (-0.33316002 + q * (0.1979689201 + q * (-0.1319590223 + q * turn))))
    turn = tl.where(high > wide, -turn + _PI / 2, turn)
    turn = tl.where(x < 0, -turn + _PI, turn)
    return tl.where(y < 0, -turn, turn)


@triton.jit
def normal(kind, x, y, z):
    """The outward direction at points of the surface."""
    if kind == CUBE:
        nx, ny, nz = (
            x - clamp(x, -_CUBE_INNER, _CUBE_INNER),
            y - clamp(y, -_CUBE_INNER, _CUBE_INNER),
            z - clamp(z, -_CUBE_INNER, _CUBE_INNER),
        )
    elif kind == CYLINDER:
        radius = tl.maximum(tl.sqrt(x * x + y * y), 1e-6)
        out = tl.maximum(radius - _CYLINDER_RADIUS, 0.0) / radius
        nx, ny, nz = x * out, y * out, z - clamp(z, -_CYLINDER_HALF, _CYLINDER_HALF)
    elif kind == CONE:
        turn = (tl.floor(_angle(y, x) / _SIDE) + 0.5) * _SIDE
        base = z < -1 + 1e-3
        flat = tl.where(base, 0.0, 2 * _SLOPE)
        nx, ny, nz = tl.cos(turn) * flat, tl.sin(turn) * flat, tl.where(base, -1.0, _SLOPE)
    elif kind == SPL:
        first = tl.maximum(tl.sqrt(x * x + y * y), 1e-6)
        second = tl.maximum(tl.sqrt(y * y + z * z), 1e-6)
        third = tl.maximum(tl.sqrt(z * z + x * x), 1e-6)
        to_first = (first - _RING) * (first - _RING) + z * z
        to_second = (second - _RING) * (second - _RING) + x * x
        to_third = (third - _RING) * (third - _RING) + y * y
        in_first = (to_first <= to_second) & (to_first <= to_third)
        in_second = (in_first == 0) & (to_second <= to_third)
        a, b, c = 1 - _RING / first, 1 - _RING / second, 1 - _RING / third
        nx = x * tl.where(in_first, a, tl.where(in_second, 1.0, c))
        ny = y * tl.where(in_first, a, tl.where(in_second, b, 1.0))
        nz = z * tl.where(in_first, 1.0, tl.where(in_second, b, c))
    else:
        nx, ny, nz = x * 1.0, y * 1.0, z * 1.0
    return unit(nx, ny, nz)


@triton.jit
def _clearance(ox, oy, oz, tx, ty, tz, middle, reach, SHAPE: tl.constexpr):
    """The least distance / t of a way past a shape, by golden sections (`render_light.passing`)."""
    low, high = clamp(middle - reach, 1e-3, 1.0), clamp(middle + reach, 1e-3, 1.0)
    first, second = high - (high - low) * _GOLDEN, low + (high - low) * _GOLDEN
    at_first = distance(ox + first * tx, oy + first * ty, oz + first * tz, SHAPE) / first
    at_second = distance(ox + second * tx, oy + second * ty, oz + second * tz, SHAPE) / second
    for _ in range(6):
        left = at_first < at_second
        low, high = tl.where(left, low, first), tl.where(left, second, high)
        probe = tl.where(left, high - (high - low) * _GOLDEN, low + (high - low) * _GOLDEN)
        found = distance(ox + probe * tx, oy + probe * ty, oz + probe * tz, SHAPE) / probe
        first, second = tl.where(left, probe, second), tl.where(left, first, probe)
        at_first, at_second = tl.where(left, found, at_second), tl.where(left, at_first, found)
    return tl.minimum(at_first, at_second)


@triton.jit
def passing(kind, ox, oy, oz, tx, ty, tz, scale, radius):
    """The share of a lamp's light that passes a body, from the body's own frame."""
    squared = dot(tx, ty, tz, tx, ty, tz)
    middle = -dot(ox, oy, oz, tx, ty, tz) / squared
    length = tl.sqrt(squared)
    if kind == CUBE:
        ratio = _clearance(ox, oy, oz, tx, ty, tz, middle, _CUBE_BOUND / length, CUBE)
    elif kind == CYLINDER:
        ratio = _clearance(ox, oy, oz, tx, ty, tz, middle, _CYLINDER_BOUND / length, CYLINDER)
    elif kind == CONE:
        ratio = _clearance(ox, oy, oz, tx, ty, tz, middle, _CONE_BOUND / length, CONE)
    else:
        t = clamp(middle, 1e-3, 1.0)
        thin = tl.where(kind == SPL, 0.05, 0.0)
        ratio = (distance(ox + t * tx, oy + t * ty, oz + t * tz, SPHERE) + thin) / t
    k = clamp(ratio * scale / radius, -1.0, 1.0)
    return 0.5 + k * (0.75 - 0.25 * k * k)
