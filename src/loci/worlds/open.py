"""A world by its name."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from typing import Any

from loci.data.source import Source
from loci.errors import UserError

WORLDS = {"moving_mnist": "MovingMnist", "cater": "Cater", "clevrer": "Clevrer", "aquarium": "Aquarium"}
"""Each world's module, and its class there; a module is imported when its world is asked for."""


def open_world(name: str, **options: Any) -> Source:
    """A world made with some of its options, the others being its own; an option of None counts as not given."""
    if name not in WORLDS:
        raise UserError(f"no world {name!r}{_near(name, list(WORLDS))}: choose one of {', '.join(WORLDS)}")
    kind = getattr(importlib.import_module(f"loci.worlds.{name}"), WORLDS[name])
    given = {option: value for option, value in options.items() if value is not None}
    known = [field.name for field in dataclasses.fields(kind)]
    for option in given:
        if option not in known:
            raise UserError(
                f"world {name} has no option {option!r}{_near(option, known)}: choose from {', '.join(known)}"
            )
    source: Source = kind(**given)
    return source


def _near(word: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(word, choices, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
