"""Where the time of tracking went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from loci.track.video_in import Frame


@dataclass
class Clock:
    """Where the time went, in seconds by name."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Time a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] = self.spent.get(what, 0.0) + time.perf_counter() - start

    def over(self, what: str, items: Iterator[Frame]) -> Iterator[Frame]:
        """Time how long it takes to get the next item."""
        while True:
            with self(what):
                item = next(items, None)
            if item is None:
                return
            yield item
