"""A world by its name."""

from __future__ import annotations

import dataclasses
from typing import Any

from loci.data.source import Source
from loci.errors import UserError, near

WORLDS = ("moving_mnist", "cater", "clevrer", "aquarium")


def open_world(name: str, **options: Any) -> Source:
    """A world made with some of its options, the others being its own; an option of None counts as not given."""
    kind = world_class(name)
    given = {option: value for option, value in options.items() if value is not None}
    known = [field.name for field in dataclasses.fields(kind)]
    for option in given:
        if option not in known:
            raise UserError(
                f"world {name} has no option {option!r}{near(option, known)}: choose from {', '.join(known)}"
            )
    source: Source = kind(**given)
    return source


def world_class(name: str) -> Any:
    """The world's class; each is imported only when it is asked for."""
    if name == "moving_mnist":
        from loci.worlds.moving_mnist import MovingMnist

        return MovingMnist
    if name == "cater":
        from loci.worlds.cater import Cater

        return Cater
    if name == "clevrer":
        from loci.worlds.clevrer import Clevrer

        return Clevrer
    if name == "aquarium":
        from loci.worlds.aquarium import Aquarium

        return Aquarium
    raise UserError(f"no world {name!r}{near(name, WORLDS)}: choose one of {', '.join(WORLDS)}")
