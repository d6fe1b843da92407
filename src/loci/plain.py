"""Dataclasses as plain JSON values and back: strict, and exact inverses.

An error names the full path of the field and, for a misspelt name, the nearest one that exists.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from loci.errors import UserError

C = TypeVar("C")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON values."""
    return {f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def from_dict(kind: type[C], values: Mapping[str, Any], path: str = "") -> C:
    """A config from plain JSON values: every name known, every type right; names left out keep their defaults."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path or 'config'} is {values!r}; expected a mapping with the fields of {kind.__name__}")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
            hint = f"did you mean {_join(path, near[0])!r}?" if near else f"it may hold {', '.join(names)}."
            raise UserError(f"no field {_join(path, str(name))!r} in the config; {hint}")
    typed = {name: _typed(hints[name], value, _join(path, name)) for name, value in values.items()}
    try:
        return kind(**typed)
    except UserError as error:
        if path in str(error):
            raise
        raise UserError(f"{path}: {error}") from error


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _typed(hint: Any, value: Any, path: str) -> Any:
    """The value as the type asks, or an error with its path."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, path)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _typed(next(a for a in arguments if a is not type(None)), value, path)
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{path} is {value!r}; choose from {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path} is {value!r}; expected a list")
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            if len(value) != len(arguments):
                raise UserError(f"{path} has {len(value)} entries; expected {len(arguments)}")
            return tuple(_typed(a, v, f"{path}.{i}") for i, (a, v) in enumerate(zip(arguments, value, strict=True)))
        return tuple(_typed(arguments[0], item, f"{path}.{i}") for i, item in enumerate(value))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UserError(f"{path} is {value!r}, a {type(value).__name__}; expected {hint.__name__}")
    return value
