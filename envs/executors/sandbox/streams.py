"""One output pipe of a running program: keeps the head, counts the rest."""

from __future__ import annotations

import os
from collections.abc import Callable

_CHUNK = 65536


class CappedStream:
    """Reads a non-blocking pipe. Invariant: holds at most ``keep`` bytes, whatever the program writes."""

    def __init__(self, fd: int, keep: int, flood: int, on_flood: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.total = 0
        self.open = True
        self._keep = keep
        self._flood = flood
        self._on_flood = on_flood
        self._kept = bytearray()

    @property
    def data(self) -> bytes:
        return bytes(self._kept)

    @property
    def truncated(self) -> bool:
        return self.total > self._keep

    def pump(self) -> bool:
        """Take one chunk if one is there. False when nothing is, for now or for good."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.open = False
            return False
        before, self.total = self.total, self.total + len(chunk)
        self._kept += chunk[: max(0, self._keep - len(self._kept))]
        if before <= self._flood < self.total:
            self._on_flood()
        return True
