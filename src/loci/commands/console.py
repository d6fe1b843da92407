"""What every command shares: parsing, progress with time left, tables. The only place that talks to the terminal."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, get_type_hints

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

A = TypeVar("A")
T = TypeVar("T")

out = Console()
err = Console(stderr=True)


class Advance(Protocol):
    """Called after each piece of work."""

    def __call__(self, steps: int = 1, note: str = "") -> None:
        """Some more is done."""


def parse(kind: type[A], words: list[str], name: str, examples: str, default: A | None = None) -> A:
    """Options from the words of a command line, by a frozen dataclass whose docstrings are the help.

    A wrong word ends the program with code 2, as tyro does.
    """
    words = flags(kind, words)
    description = f"{(kind.__doc__ or '').strip()}\n\nExamples:\n{examples.strip()}"
    if default is None:
        return tyro.cli(kind, args=words, prog=f"loci {name}", description=description)
    return tyro.cli(kind, args=words, prog=f"loci {name}", description=description, default=default)


def first() -> bool:
    """Whether this is the process that talks, of those that torchrun has started."""
    return os.environ.get("RANK", "0") == "0"


def flags(kind: type, words: list[str]) -> list[str]:
    """`--model.snitch true` as tyro has it, `--model.snitch`; and false as `--model.no-snitch`."""
    switches = set(_switches(kind))
    split = [part for word in words for part in (word.split("=", 1) if word.partition("=")[0] in switches else [word])]
    told: list[str] = []
    for word in split:
        if told and told[-1] in switches and word.lower() in ("true", "false"):
            name = told.pop()
            begin = name.rfind(".") + 1 or len("--")
            told.append(name if word.lower() == "true" else f"{name[:begin]}no-{name[begin:]}")
        else:
            told.append(word)
    return told


def _switches(kind: Any, path: str = "--") -> Iterator[str]:
    hints = get_type_hints(kind)
    for item in dataclasses.fields(kind):
        name = path + item.name.replace("_", "-")
        if dataclasses.is_dataclass(hints[item.name]):
            yield from _switches(hints[item.name], f"{name}.")
        elif hints[item.name] is bool:
            yield name


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """A bar with time left, on standard error, gone when done; silent where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total, note="")

        def advance(steps: int = 1, note: str = "") -> None:
            bar.update(task, advance=steps, note=note)

        yield advance


def over(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar."""
    size = total if total is not None else (len(items) if hasattr(items, "__len__") else None)  # type: ignore[arg-type]
    with progress(what, size) as advance:
        for item in items:
            yield item
            advance()


def table(title: str, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A small table on standard output."""
    grid = Table(title=title)
    for name in header:
        grid.add_column(name)
    for row in rows:
        grid.add_row(*map(str, row))
    out.print(grid)


def say(text: str) -> None:
    """A line on standard output."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """A warning on standard error."""
    err.print(f"warning: {text}", markup=False, highlight=False, soft_wrap=True)
