"""Image files, and other sizes of frames and masks."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from loci.errors import UserError

Pixels = NDArray[np.uint8]
Size = tuple[int, int]

LARGEST = 2**26  # pixels of a picture: a header that claims more is damaged, or an attack on the memory


def read_image(path: Path) -> Pixels:
    """An image file as RGB [H,W,3]."""
    try:
        raw = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return decode_image(raw, str(path))


def decode_image(raw: Pixels, name: str) -> Pixels:
    """An encoded image as RGB [H,W,3]; `name` is what an error calls it."""
    if len(raw) == 0:
        raise UserError(f"{name} is empty")
    try:
        picture = cv2.imdecode(raw, cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise UserError(f"{name} is no image that can be read: {error.err}") from error
    if picture is None:
        raise UserError(f"{name} is no image that can be read")
    return np.ascontiguousarray(picture[..., ::-1], np.uint8)


def resized(frame: Pixels, size: Size | None) -> Pixels:
    """A frame [H,W,C] at another size: averaged where it shrinks, linear where it grows."""
    if size is None or frame.shape[:2] == size:
        return frame
    shrinks = size[0] * size[1] < frame.shape[0] * frame.shape[1]
    result = cv2.resize(frame, (size[1], size[0]), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return np.asarray(result, np.uint8).reshape(*size, frame.shape[2])


def resampled(masks: NDArray[np.generic], size: Size) -> NDArray[np.generic]:
    """Masks or labels [...,H,W] at another size: each new pixel takes what lies under its centre."""
    H, W = masks.shape[-2:]
    if size == (H, W):
        return masks
    rows, columns = (((np.arange(new) + 0.5) * old / new).astype(int) for new, old in zip(size, (H, W), strict=True))
    return masks[..., rows[:, None], columns]


def pixel_to_position(row: NDArray[np.floating], old: int, new: int) -> NDArray[np.float32]:
    """Coordinates on an axis of `old` pixels (pixel i is centred at i) as positions on one of `new` pixels."""
    moved = (np.asarray(row, np.float64) + 0.5) * new / old - 0.5
    return (2 * moved / max(new - 1, 1) - 1).astype(np.float32)
