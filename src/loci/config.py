"""Everything that can be chosen, as frozen dataclasses that refuse what makes no sense.

`to_dict` and `from_dict` are exact inverses; an error names the full path of the field and, for a misspelt name, the
nearest one that exists.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from loci.errors import UserError

C = TypeVar("C")

Feature = Literal[
    "frame", "error", "own_mask", "other_masks", "background_mask", "own_colours", "own_position", "other_positions"
]
FEATURES: tuple[Feature, ...] = typing.get_args(Feature)
"""The eight things a slot sees, in the order of its twelve input channels."""


def require(condition: bool, text: str) -> None:
    """Refuse a value with a reason."""
    if not condition:
        raise UserError(text)


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of the slot-wise encoder."""

    channels: int = 48
    """Channels at 1/16 of the fine frame."""
    fine_channels: int = 24
    """Channels at 1/4 of the fine frame."""
    layers: int = 3
    """Residual blocks at each scale and in each head."""

    def __post_init__(self) -> None:
        require(self.layers >= 0, f"encoder.layers is {self.layers}; it must be 0 or more")
        require(
            self.fine_channels > 0 and self.fine_channels % 12 == 0,
            f"encoder.fine_channels is {self.fine_channels}; it must be a positive multiple of the 12 input channels",
        )
        require(
            self.channels > 0 and self.channels % self.fine_channels == 0,
            f"encoder.channels is {self.channels}; it must be a positive multiple of "
            f"encoder.fine_channels = {self.fine_channels}",
        )


@dataclass(frozen=True)
class TransitionConfig:
    """Sizes of the transition, and how credit travels through time."""

    heads: int = 2
    """Attention heads; the hidden width is heads times (gestalt + 4)."""
    layers: int = 2
    """Pairs of attention and recurrent cell."""
    cell: Literal["gatelord", "lstm"] = "gatelord"
    """The recurrent cell of each slot."""
    credit: Literal["eprop", "bptt"] = "eprop"
    """By forward eligibility traces, or by back-propagation through `train.window` steps (1: no credit at all)."""
    sparsity: float = 1e-10
    """GateL0RD's penalty on open gates, the paper's lambda."""

    def __post_init__(self) -> None:
        require(self.heads >= 1, f"transition.heads is {self.heads}; it must be 1 or more")
        require(self.layers >= 1, f"transition.layers is {self.layers}; it must be 1 or more")
        require(self.cell in ("gatelord", "lstm"), f"transition.cell is {self.cell!r}; choose gatelord or lstm")
        require(self.credit in ("eprop", "bptt"), f"transition.credit is {self.credit!r}; choose eprop or bptt")
        require(self.sparsity >= 0, f"transition.sparsity is {self.sparsity}; it must be 0 or more")


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the slot-wise decoder."""

    channels: int = 48
    """Channels at 1/16 of the fine frame."""
    layers: int = 5
    """Residual blocks before the mask and colour branches part."""

    def __post_init__(self) -> None:
        require(self.layers >= 1, f"decoder.layers is {self.layers}; it must be 1 or more")
        require(
            self.channels > 0 and self.channels % 12 == 0,
            f"decoder.channels is {self.channels}; it must be a positive multiple of 12",
        )


@dataclass(frozen=True)
class SearchConfig:
    """Where slots look that have not claimed an object yet."""

    guided: bool = True
    """Take the candidate with the most error under it; otherwise the first one, which is the paper's random draw."""
    candidates: int = 10
    """Places drawn for each slot."""
    invisible: bool = False
    """Search also with slots whose object has become invisible (the paper's choice for the aquarium)."""

    def __post_init__(self) -> None:
        require(self.candidates >= 1, f"search.candidates is {self.candidates}; it must be 1 or more")


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

    height: int = 240
    """Height of the fine frame; the coarse one has a quarter of it."""
    width: int = 320
    """Width of the fine frame."""
    resolution: Literal["coarse", "fine"] = "fine"
    """Which frames the network takes; the weights serve both."""
    slots: int = 10
    """How many objects it can follow, unless `start` is told otherwise."""
    gestalt: int = 96
    """Size of the code of what an object is."""
    bootstrap: int = 10
    """How often the first frame is shown before the sequence."""
    snitch: bool = False
    """With the head that picks the slot that holds CATER's snitch."""
    zeroed: tuple[Feature, ...] = ()
    """Features of the slots' view to blank, for ablations."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    transition: TransitionConfig = field(default_factory=TransitionConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            size = getattr(self, name)
            require(32 <= size <= 8192 and size % 16 == 0, f"model.{name} is {size}; 32 to 8192, divisible by 16")
        require(self.resolution in ("coarse", "fine"), f"model.resolution is {self.resolution!r}; coarse or fine")
        require(self.slots >= 1, f"model.slots is {self.slots}; it must be 1 or more")
        require(self.gestalt >= 1, f"model.gestalt is {self.gestalt}; it must be 1 or more")
        require(self.bootstrap >= 0, f"model.bootstrap is {self.bootstrap}; it must be 0 or more")
        for feature in self.zeroed:
            require(feature in FEATURES, f"model.zeroed has {feature!r}; choose from {', '.join(FEATURES)}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the frames the network takes."""
        shrink = 4 if self.resolution == "coarse" else 1
        return self.height // shrink, self.width // shrink

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the latent grid, the same at both resolutions."""
        return self.height // 16, self.width // 16

    @property
    def code(self) -> int:
        """Numbers that describe one slot: row, column, size, Gestalt, priority."""
        return self.gestalt + 4


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
    return kind(**{name: _typed(hints[name], value, _join(path, name)) for name, value in values.items()})


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


@dataclass(frozen=True)
class Config:
    """A run: the network, what it watches, and how it learns."""

    model: ModelConfig = field(default_factory=ModelConfig)
