"""The one error a person can cause: its text names the value, the choices and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what was asked for; the command line prints it and exits with code 2."""


def near(word: str, choices: Iterable[str]) -> str:
    """A guess at what was meant, to be put behind the wrong word; empty where no choice is like it."""
    found = difflib.get_close_matches(word, list(choices), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
