"""Named waits: who waits for what, and since when. A stall prints this board instead of staying silent."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator


class WaitBoard:
    """The waits in progress of one owner."""

    def __init__(self) -> None:
        self._waits: dict[int, tuple[str, float]] = {}
        self._keys = itertools.count()

    @contextlib.contextmanager
    def on(self, name: str) -> Iterator[None]:
        """List ``name`` for as long as the block runs."""
        key = next(self._keys)
        self._waits[key] = (name, time.monotonic())
        try:
            yield
        finally:
            del self._waits[key]

    def snapshot(self) -> list[tuple[str, float]]:
        """(name, seconds so far), longest first."""
        now = time.monotonic()
        return sorted(((name, now - since) for name, since in self._waits.values()), key=lambda wait: -wait[1])
