"""Receivers that found nothing, and how they are woken.

Invariant: whoever frees the head of a lane after a receiver looked wakes that receiver. Waking is a hint: the receiver
looks again, and may find that another was first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Waiter:
    lane: str | None  # None takes any lane
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class Waiters:
    """The waiting receivers of one process, by queue."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[_Waiter]] = {}

    @contextmanager
    def waiting(self, queue: str, lane: str | None) -> Iterator[asyncio.Event]:
        """Listed for as long as the block runs. Clear the event before looking, wait for it after."""
        waiter = _Waiter(lane)
        self._waiting.setdefault(queue, []).append(waiter)
        try:
            yield waiter.ready
        finally:
            self._waiting[queue].remove(waiter)
            if not self._waiting[queue]:
                del self._waiting[queue]

    @property
    def queues(self) -> list[str]:
        """The queues that someone waits for."""
        return list(self._waiting)

    def wake(self, queue: str, lane: str) -> None:
        """The head of ``lane`` may be free."""
        for waiter in self._waiting.get(queue, ()):
            if waiter.lane in (None, lane):
                waiter.ready.set()

    def wake_all(self) -> None:
        """Everyone is to look again."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.ready.set()
