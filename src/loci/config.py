"""Everything that can be chosen, as frozen dataclasses that refuse what makes no sense.

`to_dict` and `from_dict` (in `loci.plain`) are exact inverses.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from typing import Literal

from loci.errors import UserError
from loci.plain import from_dict as from_dict
from loci.plain import to_dict as to_dict

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
        require(self.layers >= 0, f"model.encoder.layers is {self.layers}; it must be 0 or more")
        require(
            self.fine_channels > 0 and self.fine_channels % 12 == 0,
            f"model.encoder.fine_channels is {self.fine_channels}; it must be a positive multiple of 12, the inputs",
        )
        require(
            self.channels > 0 and self.channels % self.fine_channels == 0,
            f"model.encoder.channels is {self.channels}; it must be a positive multiple of "
            f"model.encoder.fine_channels = {self.fine_channels}",
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
        require(self.heads >= 1, f"model.transition.heads is {self.heads}; it must be 1 or more")
        require(self.layers >= 1, f"model.transition.layers is {self.layers}; it must be 1 or more")
        require(self.cell in ("gatelord", "lstm"), f"model.transition.cell is {self.cell!r}; choose gatelord or lstm")
        require(self.credit in ("eprop", "bptt"), f"model.transition.credit is {self.credit!r}; choose eprop or bptt")
        require(self.sparsity >= 0, f"model.transition.sparsity is {self.sparsity}; it must be 0 or more")


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of the slot-wise decoder."""

    channels: int = 48
    """Channels at 1/16 of the fine frame."""
    layers: int = 5
    """Residual blocks before the mask and colour branches part."""

    def __post_init__(self) -> None:
        require(self.layers >= 1, f"model.decoder.layers is {self.layers}; it must be 1 or more")
        require(
            self.channels > 0 and self.channels % 12 == 0,
            f"model.decoder.channels is {self.channels}; it must be a positive multiple of 12",
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
        require(self.candidates >= 1, f"model.search.candidates is {self.candidates}; it must be 1 or more")


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


@dataclass(frozen=True)
class DataConfig:
    """What the network watches."""

    source: str = "moving_mnist"
    """A world, or a format: moving_mnist, cater, clevrer, aquarium, video, images, movi, clevr, mnist."""
    path: str | None = None
    """The file or folder, for a format."""
    length: int = 30
    """Frames in a sequence."""
    batch: int = 16
    """Sequences side by side, over all devices together."""
    clips: int | None = None
    """Train on the first so many clips only, again and again; all of them by default."""
    background: str | None = None
    """A picture of the scene without objects; "learned" for one that moves, learned before the training begins.
    Otherwise what the source says, or for footage a mixture of Gaussians."""
    options: tuple[str, ...] = ()
    """More of the source's own options, as name=value."""

    def __post_init__(self) -> None:
        require(self.length >= 2, f"data.length is {self.length}; it must be 2 or more: a frame and the next one")
        require(self.batch >= 1, f"data.batch is {self.batch}; it must be 1 or more")
        require(self.clips is None or self.clips >= 1, f"data.clips is {self.clips}; it must be 1 or more")
        for option in self.options:
            require("=" in option, f"data.options has {option!r}; expected name=value")


@dataclass(frozen=True)
class LossConfig:
    """The weight of every term; that of the supervision belongs to the stages."""

    reconstruction: float = 1.0
    """L_BCE."""
    position: float = 0.01
    """L_p: slots that move."""
    object: float = 1.0
    """L_o: unseen slots that forget their looks."""
    time: float = 0.1
    """L_t: slots that change their looks."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            weight = getattr(self, item.name)
            require(0 <= weight < math.inf, f"loss.{item.name} is {weight}; it must be 0 or more")


@dataclass(frozen=True)
class Stage:
    """A part of the training; the next one goes on with the same weights."""

    updates: int = 100_000
    """Its length; it ends with the sequence in which it is over."""
    resolution: Literal["coarse", "fine"] | None = None
    """Which frames; the model's own resolution by default."""
    rate: float = 1e-4
    """The learning rate."""
    supervision: float = 0.0
    """The weight of the snitch's position, the paper's mu_s."""
    blind: float = 0.0
    """The share of a batch that sees its own predictions once `train.given` frames have been shown."""
    warm_up: int = 0
    """Let the rate grow from zero over so many updates."""
    final: float = 1.0
    """Let the rate fall to this share of it along a cosine; 1 keeps it."""

    def __post_init__(self) -> None:
        require(self.updates >= 1, f"train.stages: updates is {self.updates}; it must be 1 or more")
        require(
            self.resolution in (None, "coarse", "fine"),
            f"train.stages: resolution is {self.resolution!r}; choose coarse or fine",
        )
        require(0 < self.rate <= 100, f"train.stages: rate is {self.rate}; it must be positive, and 100 at most")
        require(
            0 <= self.supervision < math.inf, f"train.stages: supervision is {self.supervision}; it must be 0 or more"
        )
        require(0 <= self.blind <= 1, f"train.stages: blind is {self.blind}; it must be between 0 and 1")
        require(self.warm_up >= 0, f"train.stages: warm_up is {self.warm_up}; it must be 0 or more")
        require(0 <= self.final <= 1, f"train.stages: final is {self.final}; it must be between 0 and 1")


@dataclass(frozen=True)
class TrainConfig:
    """How the network learns."""

    seed: int = 0
    """Of everything random: weights, data, noise."""
    stages: tuple[Stage, ...] = (Stage(),)
    """One after the other."""
    updates: int | None = None
    """Stop after so many updates, whatever the stages say; the last stage lasts as long as needed."""
    minutes: float | None = None
    """Stop after so much time spent training, resumed runs included."""
    foreground: int = 30_000
    """Updates at the start that learn the foreground alone, on black, before the background is let in."""
    growth: float = 1.0
    """How fast sizes are let in, against the paper's pace of one learning rate an update."""
    brightening: float | None = None
    """How fast the background is let in, likewise; as fast as the sizes unless given."""
    dawn: bool = False
    """Show the background in targets no brighter than in predictions, so that nothing jumps as it is let in."""
    start_rate: float = 30.0
    """The learning rate of the slots' start, as a multiple of the others'."""
    given: int = 10
    """Frames shown before the blind share of a batch goes on in closed loop."""
    window: int = 1
    """Frames in one update, for back-propagation through time."""
    clip: float = 0.0
    """Gradients longer than this are cut to it; 0 leaves them."""
    patience: int = 50
    """Stop after so many updates in a row whose loss or gradient was not finite."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU where there is one."""
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    """Of all numbers; bfloat16 is that of convolutions, with everything else in float32."""
    fast: bool = True
    """Compile and record the steps where that is supported; the same numbers in less time."""
    background_updates: int = 2_000
    """Updates that a learned background gets."""
    log_every: int = 100
    """Updates between two lines of metrics."""
    picture_every: int = 2_000
    """Updates between two pictures; 0 for none."""
    evaluate_every: int = 2_000
    """Updates between two evaluations on held-out sequences; 0 for none."""
    evaluate_clips: int = 16
    """Held-out sequences in an evaluation."""
    save_every: int = 1_000
    """Updates between two checkpoints."""
    keep: int = 3
    """Checkpoints kept, besides the best network."""

    def __post_init__(self) -> None:
        require(len(self.stages) >= 1, "train.stages is empty; a run needs at least one stage")
        require(self.updates is None or self.updates >= 1, f"train.updates is {self.updates}; it must be 1 or more")
        require(self.minutes is None or self.minutes > 0, f"train.minutes is {self.minutes}; it must be positive")
        require(
            self.precision in ("float32", "bfloat16", "float64"),
            f"train.precision is {self.precision!r}; choose float32, bfloat16 or float64",
        )
        require(abs(self.seed) < 2**63, f"train.seed is {self.seed}; it must fit into 64 bits")
        for name in ("start_rate", "growth", "brightening"):
            value = getattr(self, name)
            require(value is None or value <= 1e6, f"train.{name} is {value}; 1e6 is the most there can be")
        require(self.start_rate > 0, f"train.start_rate is {self.start_rate}; it must be positive")
        require(
            self.brightening is None or self.brightening >= 0,
            f"train.brightening is {self.brightening}; it must be 0 or more",
        )
        for name in ("foreground", "growth", "clip", "picture_every", "evaluate_every"):
            require(getattr(self, name) >= 0, f"train.{name} is {getattr(self, name)}; it must be 0 or more")
        for name in (
            "given",
            "window",
            "patience",
            "log_every",
            "evaluate_clips",
            "save_every",
            "keep",
            "background_updates",
        ):
            require(getattr(self, name) >= 1, f"train.{name} is {getattr(self, name)}; it must be 1 or more")

    @property
    def total(self) -> int:
        """Updates in all."""
        return sum(stage.updates for stage in self.stages) if self.updates is None else self.updates


@dataclass(frozen=True)
class Config:
    """A run: the network, what it watches, and how it learns."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        require(
            self.train.window == 1 or self.model.transition.credit == "bptt",
            f"train.window is {self.train.window} with e-prop, which needs no window: "
            "set it to 1, or model.transition.credit to bptt",
        )
        supervised = any(stage.supervision > 0 for stage in self.train.stages)
        require(
            self.model.snitch or not supervised,
            "a stage has supervision, but the network has no snitch head: set model.snitch to true",
        )
