"""`loci import`: a checkpoint of the published code becomes one of ours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from loci import presets
from loci.commands.console import parse, say
from loci.config import Config, ModelConfig
from loci.errors import UserError

EXAMPLES = """
  loci import published.pt cater.safetensors --preset cater
  loci import published.pt small.safetensors --preset cater --model.slots 6 --model.gestalt 64
"""


@dataclass(frozen=True)
class Options:
    """Read a checkpoint of the published code (weights only; nothing in it is run)."""

    source: Annotated[Path, tyro.conf.Positional]
    """The torch file, with a key `model`."""
    target: Annotated[Path, tyro.conf.Positional]
    """The safetensors file to write."""
    preset: str = "cater"
    """The sizes the network was trained with; each of them can be said by itself too. Whether there is a snitch head,
    the file says."""
    model: ModelConfig = field(default_factory=ModelConfig)


def main(words: list[str]) -> int:
    """Run the command."""
    first = parse(Options, words, "import", EXAMPLES, _default("cater"))
    if first.preset not in presets.PRESETS:
        raise UserError(f"--preset {first.preset!r}: choose from {', '.join(presets.PRESETS)}")
    options = parse(Options, words, "import", EXAMPLES, _default(first.preset))
    from loci import checkpoint
    from loci.model import Loci
    from loci.published import import_published, read_published

    if options.target.exists() and options.source.exists() and options.target.samefile(options.source):
        raise UserError(f"{options.target} is the file to be read; choose another name to write to")
    tensors = read_published(options.source)
    model = Loci(replace(options.model, snitch=any(".tracker.gate." in name for name in tensors)))
    extra = import_published(model, tensors)
    kept = {f"published/{name}": tensor for name, tensor in extra.items()}
    content = checkpoint.Content(Config(model=model.config), 0, {}, {**model.state_dict(), **kept})
    checkpoint.write(options.target, content)
    say(f"{options.target}: {sum(p.numel() for p in model.parameters()):,} parameters, preset {options.preset}")
    return 0


def _default(preset: str) -> Options:
    nothing = tyro.MISSING_NONPROP
    return Options(nothing, nothing, model=presets.PRESETS[preset]().model)
