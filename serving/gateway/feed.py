"""Events from the engine's thread to the event loop, in batches.

Invariants: none is lost, and their order is kept; the loop is woken once a batch, not once an event.
"""

from __future__ import annotations

import asyncio
from collections import deque

from callwright.serving.gateway.reading import Piece, Think
from callwright.serving.protocol import Event


class Feed:
    """``put`` is called off the loop, ``batch`` on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._events: deque[Event] = deque()
        self._woken = False

    def put(self, event: Event) -> None:
        self._events.append(event)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._ready.set)

    def wake(self) -> None:
        """Let the one who waits look again, without an event."""
        self._ready.set()

    async def batch(self) -> list[Event]:
        """What came since the last batch; waits for the first of it, or for ``wake``."""
        await self._ready.wait()
        self._ready.clear()
        self._woken = False  # before the queue is read: an event that comes meanwhile wakes the next batch
        found = []
        while self._events:
            found.append(self._events.popleft())
        return found


def joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring texts as one, and neighbouring thoughts."""
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if isinstance(piece, str) and isinstance(last, str):
            out[-1] = last + piece
        elif isinstance(piece, Think) and isinstance(last, Think):
            out[-1] = Think(last.text + piece.text)
        else:
            out.append(piece)
    return out
