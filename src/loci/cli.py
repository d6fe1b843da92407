"""The command line: one module of `loci.commands` for each command, imported only when it is asked for."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import logging
import os
import sys
import threading
from typing import NoReturn

from loci.errors import UserError

COMMANDS = {
    "demo": "make two clips, track them with the networks that ship, and say how good that was",
    "train": "learn from endless worlds or from your own video",
    "track": "any video in; tracks, masks and a picture out",
    "imagine": "watch a video up to some frame, then run on in closed loop",
    "background": "work out the background of a video",
    "evaluate": "the paper's metrics for a network on a source",
    "reproduce": "an experiment of the paper, its figures beside ours",
    "data": "make or look at labelled video",
    "bench": "how fast training and tracking are here",
    "import": "read a checkpoint of the published code",
    "export-published": "write a checkpoint that the published code reads",
}


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return f"usage: loci COMMAND [options]\n\n{rows}\n\n`loci COMMAND --help` has the options and examples."


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 if it worked, 2 if what was asked for makes no sense, 130 after Ctrl-C."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if words else 2
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"loci {version('loci')}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        print(f"loci: no command {name!r}{hint} One of: {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING  # one of torchrun's talks for all
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    try:
        module = importlib.import_module(f"loci.commands.{name.replace('-', '_').replace('import', 'import_')}")
        return int(module.main(rest) or 0)
    except UserError as error:
        print(f"loci {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"loci {name}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


def run() -> NoReturn:
    """The program: `main`, and then out, though a thread may still be making frames that nobody will see."""
    code = main()
    with contextlib.suppress(OSError):  # nobody reads on
        sys.stdout.flush()
        sys.stderr.flush()
    if threading.active_count() > 1:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
