"""PyAV, imported when a video is opened: worlds and images do without it, and so does a machine that lacks it."""

from __future__ import annotations

from typing import Any

from loci.errors import UserError


def pyav() -> Any:
    """The library."""
    try:
        import av
    except ModuleNotFoundError as error:
        raise UserError("videos are read by av, which is not installed: pip install av") from error
    return av


def available() -> bool:
    """Whether it is installed."""
    try:
        pyav()
    except UserError:
        return False
    return True
