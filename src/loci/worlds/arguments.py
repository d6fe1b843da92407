"""What all worlds ask of their arguments."""

from __future__ import annotations

from loci.data.source import SPLITS
from loci.errors import UserError


def check(split: str, size: tuple[int, int], length: int, least: int) -> None:
    """Refuse a split, a size or a length that makes no sense; `least` pixels are needed each way."""
    if split not in SPLITS:
        raise UserError(f"split {split!r}: choose one of {', '.join(SPLITS)}")
    if min(size) < least:
        raise UserError(f"size {size}: frames need at least {least} pixels each way")
    if length < 1:
        raise UserError(f"length {length}: a clip needs at least 1 frame")
