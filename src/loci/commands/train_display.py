"""What a person sees while a network learns."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from loci.commands import console

TERMS = ("reconstruction", "position", "object", "time", "supervision")
REFRESH = 0.25


class Display:
    """A bar with updates/s and time left, and under it the last metrics; plain lines where there is no terminal."""

    def __init__(self, total: int, seconds: float | None = None, quiet: bool = False) -> None:
        """Expect so many updates, or as many as there is time for, whichever ends first."""
        self.total = total
        self.seconds = math.inf if seconds is None else seconds
        self.quiet = quiet
        self.begun: tuple[int, float] | None = None
        self.shown = 0.0
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
        self.bar = Progress(*columns)
        self.task = self.bar.add_task("training", total=total, pace="")
        self.text = Text()
        terminal = sys.stderr.isatty() and not quiet
        self.live = (
            Live(Group(self.bar, self.text), console=console.err, refresh_per_second=4, transient=True)
            if terminal
            else None
        )

    def __enter__(self) -> Display:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, update: int, metrics: Mapping[str, float] | None) -> None:
        """So many updates are done."""
        now = time.monotonic()
        if self.begun is None:
            self.begun = (update, now)
        if self.live is None:
            if metrics is not None and not self.quiet:
                pace = self._pace(update, now)
                console.err.print(f"{update}/{self.total}  {pace}  {line(metrics)}", highlight=False, soft_wrap=True)
            return
        if metrics is not None:
            self.text.plain = line(metrics)
        if now - self.shown > REFRESH:
            self.shown = now
            self.bar.update(self.task, completed=update, pace=self._pace(update, now))

    def _pace(self, update: int, now: float) -> str:
        done, since = self.begun or (update, now)
        if update == done:
            return ""
        pace = (update - done) / (now - since)
        left = min((self.total - update) / pace, self.seconds - (now - since))
        return f"{pace:.3g} updates/s, {duration(max(0.0, left))} left"


def line(metrics: Mapping[str, float]) -> str:
    """Metrics in a line."""
    if "loss" not in metrics:
        return f"no update was finite; {metrics['dropped']:.0f} dropped"
    terms = " ".join(f"{name} {metrics[name]:.3g}" for name in TERMS if metrics[name])
    told = (
        f"loss {metrics['loss']:.4g} ({terms})  L2_object {metrics['l2_object']:.3g}  "
        f"visible slots {metrics['visible']:.2f}  gates open {metrics['gates']:.0%}"
    )
    if "waiting" in metrics:
        told += f"  waiting for data {metrics['waiting']:.0%}"
    return told + (f"  dropped {metrics['dropped']:.0f}" if metrics["dropped"] else "")


def duration(seconds: float) -> str:
    """Rounded, for people."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
