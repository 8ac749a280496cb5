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
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class Waiters:
    """The waiting receivers of one process, by queue and lane: waking the ones of a lane costs nothing for the rest."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str | None, dict[_Waiter, None]]] = {}

    @contextmanager
    def waiting(self, queue: str, lane: str | None) -> Iterator[asyncio.Event]:
        """Listed for as long as the block runs. Clear the event before looking, wait for it after."""
        waiter = _Waiter()
        self._waiting.setdefault(queue, {}).setdefault(lane, {})[waiter] = None
        try:
            yield waiter.ready
        finally:
            lanes = self._waiting[queue]
            del lanes[lane][waiter]
            if not lanes[lane]:
                del lanes[lane]
            if not lanes:
                del self._waiting[queue]

    @property
    def queues(self) -> list[str]:
        """The queues that someone waits for."""
        return list(self._waiting)

    def wake(self, queue: str, lane: str) -> None:
        """The head of ``lane`` may be free."""
        lanes = self._waiting.get(queue, {})
        for waiter in (*lanes.get(None, ()), *lanes.get(lane, ())):
            waiter.ready.set()

    def wake_all(self) -> None:
        """Everyone is to look again."""
        for lanes in self._waiting.values():
            for waiters in lanes.values():
                for waiter in waiters:
                    waiter.ready.set()
