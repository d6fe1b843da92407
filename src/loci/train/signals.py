"""SIGTERM and Ctrl-C: finish the update at hand, save, leave. A second Ctrl-C leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Literal

Reason = Literal["finished", "time is up", "not finite", "terminated", "interrupted"]
REASONS: tuple[Reason, ...] = ("finished", "time is up", "not finite", "terminated", "interrupted")
"""Why a run stops; where processes differ, the later one counts."""
ECHO = 1.0
"""Seconds in which torchrun passes on the Ctrl-C that its processes have already had."""
HINT = b"\nsaving; press Ctrl-C again to leave at once, without\n"


class TerminatedError(Exception):
    """SIGTERM came before there was anything to save."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM as an error, until `Signals` takes over and again after it."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Signals:
    """While it is entered, remembers what the process was asked to do."""

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self.received: int | None = None
        self._since = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def wish(self) -> int:
        """Which of `REASONS` it was asked for; -1 for none."""
        if self.received is None:
            return -1
        return REASONS.index("interrupted" if self.received == signal.SIGINT else "terminated")

    def _note(self, number: int, _frame: FrameType | None) -> None:
        again = number == signal.SIGINT and self.received == signal.SIGINT
        terminal = sys.stderr.isatty() and os.environ.get("RANK", "0") == "0"
        if again and not (self.processes > 1 and time.monotonic() - self._since < ECHO):
            if terminal:
                os.write(2, b"\x1b[?25h\n")  # the progress display has hidden the cursor
            os._exit(130)
        if not again:
            self.received, self._since = number, time.monotonic()
            if terminal and number == signal.SIGINT:
                os.write(2, HINT)
