"""`loci export-published`: a network of ours as a checkpoint that the published code reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from loci.commands.console import parse, say

EXAMPLES = """
  loci export-published runs/cater published.pt
  loci export-published cater.safetensors published.pt
"""


@dataclass(frozen=True)
class Options:
    """Write a network for the published code, so that results can be checked there."""

    network: Annotated[str, tyro.conf.Positional]
    """A file, a run's folder, or the name of a network that ships."""
    target: Annotated[Path, tyro.conf.Positional]
    """The torch file to write."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(Options, words, "export-published", EXAMPLES)
    from loci import checkpoint
    from loci.published import UNUSED, export_published, write_published

    file = checkpoint.find(options.network)
    content = checkpoint.read(file)
    kept = content.tensors.get(f"published/{UNUSED}")
    tensors = export_published(checkpoint.build(content, file), {} if kept is None else {UNUSED: kept})
    write_published(options.target, tensors)
    say(f"{options.target}: {len(tensors)} tensors under the published names")
    return 0
