"""`loci import`: a checkpoint of the published code becomes one of ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from loci.commands.console import parse, say
from loci.errors import UserError

EXAMPLES = """
  loci import published.pt cater.safetensors --preset cater
  loci import published.pt small.safetensors --preset cater --slots 6
"""


@dataclass(frozen=True)
class Options:
    """Read a checkpoint of the published code (weights only; nothing in it is run)."""

    source: Annotated[Path, tyro.conf.Positional]
    """The torch file, with a key `model`."""
    target: Annotated[Path, tyro.conf.Positional]
    """The safetensors file to write."""
    preset: Literal["cater", "cater_fine", "moving_mnist", "clevrer", "aquarium", "video", "smoke"] = "cater"
    """The sizes the network was trained with."""
    slots: int | None = None
    """How many slots it starts with, if not the preset's number; the weights serve any."""
    snitch: bool | None = None
    """Whether it has the snitch head; by default what the file says."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(Options, words, "import", EXAMPLES)
    from dataclasses import replace

    from loci import checkpoint, presets
    from loci.config import Config
    from loci.model import Loci
    from loci.published import import_published, read_published

    tensors = read_published(options.source)
    preset = presets.PRESETS[options.preset]().model
    snitch = any(".tracker.gate." in name for name in tensors) if options.snitch is None else options.snitch
    slots = preset.slots if options.slots is None else options.slots
    model = Loci(replace(preset, snitch=snitch, slots=slots))
    extra = import_published(model, tensors)
    if options.target.exists() and options.target.samefile(options.source):
        raise UserError(f"{options.target} is the file to be read; choose another name to write to")
    kept = {f"published/{name}": tensor for name, tensor in extra.items()}
    content = checkpoint.Content(Config(model=model.config), 0, {}, {**model.state_dict(), **kept})
    checkpoint.write(options.target, content)
    say(f"{options.target}: {sum(p.numel() for p in model.parameters()):,} parameters, preset {options.preset}")
    return 0
