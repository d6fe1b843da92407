# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
# ruff: noqa: ANN001, ANN201, ANN202 -- Triton reads annotations of arguments as values: only constexpr may be annotated.
"""The three kernels of `loci.kernels.render`. Imported only where Triton is installed."""

from __future__ import annotations

import triton
import triton.language as tl

from loci.kernels.render_light import (
    BLUE,
    FIELDS,
    FLOOR,
    GREEN,
    LAMP_FIELDS,
    LAMPS,
    RED,
    face,
    glint,
    inward,
    received,
    reflected,
    surround,
    unshadowed,
)
from loci.kernels.render_shapes import FAR, NEARER, SPL, clamp, dot, entry, unit
from loci.worlds import render_shade as look

NOBODY = tl.constexpr(255)
_SIZES = ["first", "length", "objects", "height", "width", "rows", "columns"]
"""Numbers that differ from call to call: no kernel of its own for those that are 1 or divisible by 16."""

_ROUGH = tl.constexpr(look.ROUGH)
_SKY_RED = tl.constexpr(look.SKY[0])
_SKY_GREEN = tl.constexpr(look.SKY[1])
_SKY_BLUE = tl.constexpr(look.SKY[2])
_RINGS_DIFFUSE = tl.constexpr(look.RINGS_DIFFUSE)
_RINGS_MIRROR = tl.constexpr(look.RINGS_MIRROR)
_METAL_DIFFUSE = tl.constexpr(look.METAL_DIFFUSE)
_METAL_MIRROR = tl.constexpr(look.METAL_MIRROR)


@triton.jit
def _tile(height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of this program: its frame, the first row and column of its tile, and rows and columns of its pixels."""
    across = tl.cdiv(width, COLUMNS)
    tiles = across * tl.cdiv(height, ROWS)
    number = tl.program_id(0)
    tile = number % tiles
    top, left = tile // across * ROWS, tile % across * COLUMNS
    pixel = tl.arange(0, ROWS * COLUMNS)
    return number // tiles, top, left, top + pixel // COLUMNS, left + pixel % COLUMNS


@triton.jit
def _ray(camera, row, column):
    """The directions of rays through positions in [-1, 1]."""
    x = tl.load(camera + 3) + column * tl.load(camera + 6) + row * tl.load(camera + 9)
    y = tl.load(camera + 4) + column * tl.load(camera + 7) + row * tl.load(camera + 10)
    z = tl.load(camera + 5) + column * tl.load(camera + 8) + row * tl.load(camera + 11)
    return x, y, z


@triton.jit
def _floor_point(camera, row, column, height, width):
    """Where the floor is seen in pixels; beyond the horizon it is very far away."""
    dx, dy, dz = _ray(camera, (2 * row.to(tl.float32) + 1) / height - 1, (2 * column.to(tl.float32) + 1) / width - 1)
    t = tl.load(camera + 2) / -tl.minimum(dz, -1e-3)
    return tl.load(camera) + t * dx, tl.load(camera + 1) + t * dy


@triton.jit(do_not_specialize=_SIZES)
def floor_kernel(
    bodies, lamps, camera, shares, first, length, objects, height, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What reaches the floor's grid: of each lamp and of the light from everywhere, as shares [F,L+1,height,width]."""
    frame, _, _, row, column = _tile(height, width, ROWS, COLUMNS)
    inside = (row < height) & (column < width)
    scene = bodies + (first + frame) * objects * FIELDS
    lights = lamps + (first + frame) // length * LAMPS * LAMP_FIELDS
    out = shares + frame * (LAMPS + 1) * height * width + row * width + column
    x, y = _floor_point(camera, row, column, height, width)
    z = x * 0.0
    for number in range(LAMPS):
        free = unshadowed(scene, objects, -1, lights + number * LAMP_FIELDS, x, y, z, inside)
        tl.store(out + number * height * width, free, mask=inside)
    open_ = z + 1.0
    for n in range(objects):
        body = scene + n * FIELDS
        ox, oy, oz = x - tl.load(body), y - tl.load(body + 1), tl.load(body + 2)
        far = tl.maximum(ox * ox + oy * oy + oz * oz, tl.load(body + 26))
        open_ *= 1 - tl.load(body + 27) / tl.maximum(far * tl.sqrt(far), 1e-6)
    tl.store(out + LAMPS * height * width, open_, mask=inside)


@triton.jit(do_not_specialize=_SIZES)
def cast_kernel(
    bodies, camera, offsets, ids, depth, visible, whole,
    first, objects, height, width,
    SAMPLES: tl.constexpr, PADDED: tl.constexpr, LABELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The body that each sample meets first and where along its ray [F,height,width,S]; masks if asked for."""
    frame, top, left, row, column = _tile(height, width, ROWS, COLUMNS)
    inside = (row < height) & (column < width)
    scene = bodies + (first + frame) * objects * FIELDS
    sample = tl.arange(0, PADDED)
    real = sample < SAMPLES
    down, right = (
        tl.load(offsets + 2 * sample, mask=real, other=0.0),
        tl.load(offsets + 2 * sample + 1, mask=real, other=0.0),
    )
    rows = 2 * (row[:, None] + 0.5 + down[None, :]) / height - 1
    columns = 2 * (column[:, None] + 0.5 + right[None, :]) / width - 1
    _, _, falls = _ray(camera, rows, columns)
    eye_x, eye_y, eye_z = tl.load(camera), tl.load(camera + 1), tl.load(camera + 2)
    best = rows * 0.0 + FAR
    who = tl.full((ROWS * COLUMNS, PADDED), NOBODY, tl.int32)
    place = (first + frame).to(tl.int64) * objects * height * width + row * width + column
    for n in range(objects):
        body = scene + n * FIELDS
        meets = rows > 1e30
        touched = (tl.load(body + 22) < top + ROWS) & (tl.load(body + 23) > top)
        touched = touched & (tl.load(body + 24) < left + COLUMNS) & (tl.load(body + 25) > left)
        if touched & (tl.load(body + 20) > 0):
            kind = tl.load(body + 15).to(tl.int32)
            ox, oy, oz = inward(body, eye_x - tl.load(body), eye_y - tl.load(body + 1), eye_z - tl.load(body + 2))
            ax, ay, az = inward(body, tl.load(camera + 3), tl.load(camera + 4), tl.load(camera + 5))
            rx, ry, rz = inward(body, tl.load(camera + 6), tl.load(camera + 7), tl.load(camera + 8))
            bx, by, bz = inward(body, tl.load(camera + 9), tl.load(camera + 10), tl.load(camera + 11))
            dx, dy, dz = ax + rows * bx + columns * rx, ay + rows * by + columns * ry, az + rows * bz + columns * rz
            t = entry(kind, ox, oy, oz, dx, dy, dz)
            # What is below the floor is hidden by it: tilting bodies reach through.
            meets = (t < NEARER) & (eye_z + t * falls >= 0) & real[None, :]
            hides = tl.where(tl.load(body + 21) > 0, t, FAR)
            better = meets & (hides < best)
            best = tl.where(better, t, best)
            who = tl.where(better, n, who)
        if LABELS:
            covers = 2 * tl.sum(meets.to(tl.int32), 1) > SAMPLES
            tl.store(whole + place + n * height * width, covers, mask=inside)
    if LABELS:
        for n in range(objects):
            seen = 2 * tl.sum((who == n).to(tl.int32), 1) > SAMPLES
            tl.store(visible + place + n * height * width, seen, mask=inside)
    spot = ((frame * height + row) * width + column)[:, None] * SAMPLES + sample[None, :]
    kept = inside[:, None] & real[None, :]
    tl.store(ids + spot, who.to(tl.uint8), mask=kept)
    tl.store(depth + spot, best, mask=kept)


@triton.jit
def _floor_share(shares, row, column, height, width, rows, columns,
                 inside, SAME: tl.constexpr):  # fmt: skip
    """A plane of the floor's grid (rows × columns) at pixels of the frame (height × width), between its points."""
    if SAME:
        result = tl.load(shares + row * columns + column, mask=inside, other=0.0)
    else:
        down = tl.maximum((row + 0.5) * (rows.to(tl.float32) / height) - 0.5, 0.0)
        right = tl.maximum((column + 0.5) * (columns.to(tl.float32) / width) - 0.5, 0.0)
        i, j = down.to(tl.int32), right.to(tl.int32)
        below, beside = tl.minimum(i + 1, rows - 1), tl.minimum(j + 1, columns - 1)
        low, side = down - i, right - j
        a = tl.load(shares + i * columns + j, mask=inside, other=0.0)
        b = tl.load(shares + i * columns + beside, mask=inside, other=0.0)
        c = tl.load(shares + below * columns + j, mask=inside, other=0.0)
        d = tl.load(shares + below * columns + beside, mask=inside, other=0.0)
        result = (1 - low) * ((1 - side) * a + side * b) + low * ((1 - side) * c + side * d)
    return result


@triton.jit
def _around(
    scene, objects, own, lights, camera, shares, rows, columns,
    x, y, z, rx, ry, rz, wanted,
):  # fmt: skip
    """What mirrors see: the sky, the floor with the shadows of this frame, other bodies."""
    below = clamp(0.5 - rz / (2 * _ROUGH), 0.0, 1.0)
    below = below * below * (3 - 2 * below)
    t = z / tl.maximum(-rz, _ROUGH / 2)
    fx, fy, fz = x + t * rx, y + t * ry, z * 0.0
    depth = tl.load(camera + 20) * fx + tl.load(camera + 21) * fy + tl.load(camera + 23)
    depth = tl.maximum(depth, 0.05)
    across = (tl.load(camera + 12) * fx + tl.load(camera + 13) * fy + tl.load(camera + 15)) / depth
    up = (tl.load(camera + 16) * fx + tl.load(camera + 17) * fy + tl.load(camera + 19)) / depth
    i = clamp((1 - up) * (rows / 2), 0.0, rows - 1.0).to(tl.int32)
    j = clamp((across + 1) * (columns / 2), 0.0, columns - 1.0).to(tl.int32)
    at = shares + i * columns + j
    open_ = tl.load(at + LAMPS * rows * columns, mask=wanted, other=0.0)
    red, green, blue = open_ * RED, open_ * GREEN, open_ * BLUE
    for number in range(LAMPS):
        lamp = lights + number * LAMP_FIELDS
        given = received(lamp, fx, fy, fz, fz, fz, fz + 1.0)
        given *= tl.load(at + number * rows * columns, mask=wanted, other=0.0)
        red += given * tl.load(lamp + 3)
        green += given * tl.load(lamp + 4)
        blue += given * tl.load(lamp + 5)
    red = below * red + (1 - below) * _SKY_RED
    green = below * green + (1 - below) * _SKY_GREEN
    blue = below * blue + (1 - below) * _SKY_BLUE
    met, r, g, b = reflected(scene, objects, own, lights, x, y, z, rx, ry, rz, wanted)
    return tl.where(met, r, red), tl.where(met, g, green), tl.where(met, b, blue)


@triton.jit
def _encode(light):
    """Linear light as 8-bit sRGB."""
    light = clamp(light, 0.0, 1.0)
    curve = 1.055 * tl.exp2(tl.log2(tl.maximum(light, 0.0031308)) / 2.4) - 0.055
    return (tl.where(light <= 0.0031308, 12.92 * light, curve) * 255 + 0.5).to(tl.uint8)


@triton.jit(do_not_specialize=_SIZES)
def shade_kernel(
    bodies, lamps, camera, offsets, shares, ids, depth, frames,
    first, length, objects, height, width, rows, columns,
    SAMPLES: tl.constexpr, PADDED: tl.constexpr, SAME: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The picture [F,3,height,width]: floor and bodies by the samples they cover."""
    frame, _, _, row, column = _tile(height, width, ROWS, COLUMNS)
    inside = (row < height) & (column < width)
    scene = bodies + (first + frame) * objects * FIELDS
    lights = lamps + (first + frame) // length * LAMPS * LAMP_FIELDS
    plane = shares + frame * (LAMPS + 1) * rows * columns
    x, y = _floor_point(camera, row, column, height, width)
    zero = x * 0.0
    open_ = _floor_share(plane + LAMPS * rows * columns, row, column, height, width, rows, columns, inside, SAME)
    floor_red, floor_green, floor_blue = open_ * RED, open_ * GREEN, open_ * BLUE
    for number in range(LAMPS):
        lamp = lights + number * LAMP_FIELDS
        free = _floor_share(plane + number * rows * columns, row, column, height, width, rows, columns, inside, SAME)
        free *= received(lamp, x, y, zero, zero, zero, zero + 1.0)
        floor_red += free * tl.load(lamp + 3)
        floor_green += free * tl.load(lamp + 4)
        floor_blue += free * tl.load(lamp + 5)
    red, green, blue = floor_red, floor_green, floor_blue
    sample = tl.arange(0, PADDED)
    kept = inside[:, None] & (sample < SAMPLES)[None, :]
    spot = (frame * height + row) * width + column
    who = tl.load(ids + spot[:, None] * SAMPLES + sample[None, :], mask=kept, other=255).to(tl.int32)
    for n in range(objects):
        mine = who == n
        if tl.max(tl.max(mine.to(tl.int32), 1)) > 0:
            body = scene + n * FIELDS
            metal = tl.load(body + 16) > 0
            # Rubber is shaded once for each pixel; metal, which glitters, three times, for a third of the samples each.
            groups = tl.where(metal, 3, 1)
            for group in range(groups):
                part = mine & ((sample % groups) == group)[None, :]
                wins = tl.sum(part.to(tl.int32), 1)
                wanted = wins > 0
                chosen = tl.min(tl.where(part, sample[None, :], SAMPLES), 1)
                chosen = tl.where(wanted, chosen, 0)
                t = tl.load(depth + spot * SAMPLES + chosen, mask=wanted, other=10.0)
                down = tl.load(offsets + 2 * chosen)
                right = tl.load(offsets + 2 * chosen + 1)
                dx, dy, dz = _ray(camera, 2 * (row + 0.5 + down) / height - 1, 2 * (column + 0.5 + right) / width - 1)
                px, py, pz = tl.load(camera) + t * dx, tl.load(camera + 1) + t * dy, tl.load(camera + 2) + t * dz
                nx, ny, nz = face(body, px, py, pz)
                dx, dy, dz = unit(dx, dy, dz)
                twice = 2 * dot(dx, dy, dz, nx, ny, nz)
                rx, ry, rz = dx - twice * nx, dy - twice * ny, dz - twice * nz
                up = surround(nz)
                matt_red, matt_green, matt_blue = up * RED, up * GREEN, up * BLUE
                gloss_red, gloss_green, gloss_blue = up * 0.0, up * 0.0, up * 0.0
                for number in range(LAMPS):
                    lamp = lights + number * LAMP_FIELDS
                    given = received(lamp, px, py, pz, nx, ny, nz)
                    tx, ty, tz = tl.load(lamp) - px, tl.load(lamp + 1) - py, tl.load(lamp + 2) - pz
                    lit = wanted & (dot(nx, ny, nz, tx, ty, tz) > 0)
                    free = unshadowed(scene, objects, n, lamp, px, py, pz, lit)
                    shine = glint(lamp, px, py, pz, rx, ry, rz, metal) * free
                    given *= free
                    matt_red += given * tl.load(lamp + 3)
                    matt_green += given * tl.load(lamp + 4)
                    matt_blue += given * tl.load(lamp + 5)
                    gloss_red += shine * tl.load(lamp + 3)
                    gloss_green += shine * tl.load(lamp + 4)
                    gloss_blue += shine * tl.load(lamp + 5)
                body_red, body_green, body_blue = tl.load(body + 17), tl.load(body + 18), tl.load(body + 19)
                if metal:
                    rings = tl.load(body + 15).to(tl.int32) == SPL
                    matt = tl.where(rings, _RINGS_DIFFUSE, _METAL_DIFFUSE) / FLOOR
                    strength = tl.where(rings, _RINGS_MIRROR, _METAL_MIRROR)
                    far_red, far_green, far_blue = _around(
                        scene, objects, n, lights, camera, plane, rows, columns, px, py, pz, rx, ry, rz, wanted
                    )
                    own_red = body_red * (matt * matt_red + gloss_red + strength * far_red)
                    own_green = body_green * (matt * matt_green + gloss_green + strength * far_green)
                    own_blue = body_blue * (matt * matt_blue + gloss_blue + strength * far_blue)
                else:
                    own_red = body_red / FLOOR * matt_red + gloss_red
                    own_green = body_green / FLOOR * matt_green + gloss_green
                    own_blue = body_blue / FLOOR * matt_blue + gloss_blue
                weight = wins.to(tl.float32) / SAMPLES
                red += tl.where(wanted, weight * (own_red - floor_red), 0.0)
                green += tl.where(wanted, weight * (own_green - floor_green), 0.0)
                blue += tl.where(wanted, weight * (own_blue - floor_blue), 0.0)
    count = height * width
    out = frames + (first + frame).to(tl.int64) * 3 * count + row * width + column
    tl.store(out, _encode(red), mask=inside)
    tl.store(out + count, _encode(green), mask=inside)
    tl.store(out + 2 * count, _encode(blue), mask=inside)
