"""How a reader with a message is found: the links that take any lane, and those that stay with a lane.

Opening a link to the service takes half a second, so links are kept. A lane that was asked for by name stays with its
asker for ``IDLE_S``; see ``Acceptors`` for the others.

Invariant: every reader is in one place: offered, lingering, idle, with whoever found it, or closing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from callwright.serving.queues.background import Background
from callwright.serving.queues.broker import Message, living
from callwright.serving.queues.servicebus_acceptors import FETCH_S, Acceptors
from callwright.serving.queues.servicebus_link import Reader, session_of

ACCEPT_S = 60.0  # how long one link waits for a session before it is made anew
IDLE_S = 30.0
SLICE_S = 0.5  # how soon a search notices that nobody wants its message any more
MIN_WAIT_S = 0.2
RETRY_S = 0.2  # between two attempts to get a session that another holds

NewReader = Callable[[str, str | None, float | None], Reader]  # queue, session (None: the next free one), its wait
Found = tuple[Reader, Message]


@dataclass(slots=True)
class Wish:
    """One call of ``receive``. It is ``over`` when nobody waits for what it finds."""

    queue: str
    lane: str | None
    deadline: float  # of the loop's clock
    over: bool = False

    def left(self) -> float:
        """Seconds until the search ends."""
        return 0.0 if self.over else max(0.0, self.deadline - asyncio.get_running_loop().time())

    def slice(self) -> float:
        """How long to wait before looking again. Something even where the deadline is past: one attempt is owed."""
        return min(max(self.left(), MIN_WAIT_S), SLICE_S)


class Finder:
    """Finds messages, and takes readers back that are done with."""

    def __init__(self, new_reader: NewReader, background: Background) -> None:
        self._new_reader = new_reader
        self._background = background
        self._acceptors: dict[str, Acceptors] = {}
        self._idle: dict[tuple[str, str], tuple[Reader, asyncio.TimerHandle]] = {}
        self._closed = False

    async def find(self, wish: Wish) -> Found | None:
        """A reader with a message for this wish. Raises what the SDK raises."""
        if living(wish.queue) is not None:
            return await self._wait(self._new_reader(wish.queue, None, None), wish)
        return await (self._any_lane(wish) if wish.lane is None else self._one_lane(wish, wish.lane))

    def idle(self, queue: str, lane: str) -> Reader | None:
        """The reader that stays with a lane; it goes on staying there."""
        kept = self._idle.get((queue, lane))
        return None if kept is None else kept[0]

    def take_back(self, reader: Reader, *, named: bool) -> None:
        """The reader's message is settled, or none came; ``named``: its lane was asked for by name."""
        if self._closed or reader.lane is None:
            self.drop(reader)
        elif named:
            key = (reader.queue, reader.lane)
            self._idle[key] = (reader, asyncio.get_running_loop().call_later(IDLE_S, self._drop_idle, key))
        else:
            self._acceptors[reader.queue].linger(reader)

    def drop(self, reader: Reader) -> None:
        """Nothing more is wanted of this reader; what it holds comes again."""
        self._background.begin(reader.close())

    def close(self) -> None:
        self._closed = True
        for acceptors in self._acceptors.values():
            acceptors.close()
        for key in list(self._idle):
            self._drop_idle(key)

    def _drop_idle(self, key: tuple[str, str]) -> None:
        reader, timer = self._idle.pop(key)
        timer.cancel()
        self.drop(reader)

    async def _any_lane(self, wish: Wish) -> Found | None:
        from azure.servicebus.exceptions import OperationTimeoutError

        if wish.queue not in self._acceptors:
            new_reader = self._new_reader
            self._acceptors[wish.queue] = Acceptors(lambda: new_reader(wish.queue, None, ACCEPT_S), self._background)
        while True:
            got = await self._acceptors[wish.queue].get(wish.slice())
            if got is not None:
                reader, message = got
                try:
                    message = message or await reader.next(FETCH_S)
                except OperationTimeoutError:  # the service may tell only now that no session came
                    message = None
                except BaseException:
                    self.drop(reader)
                    raise
                if message is not None:
                    return reader, message
                self.drop(reader)
            if wish.left() == 0:
                return None

    async def _one_lane(self, wish: Wish, lane: str) -> Found | None:
        from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError

        kept = self._idle.pop((wish.queue, lane), None)
        if kept is not None:
            kept[1].cancel()
            try:
                return await self._wait(kept[0], wish)
            except Exception:  # the link broke while it lay idle: a new one tells whether anything is wrong
                kept = None
        while True:
            try:
                return await self._wait(self._new_reader(wish.queue, session_of(lane), None), wish)
            except (SessionCannotBeLockedError, OperationTimeoutError):
                if wish.left() == 0:
                    return None
                await asyncio.sleep(min(RETRY_S, wish.left()))

    async def _wait(self, reader: Reader, wish: Wish) -> Found | None:
        """The first message that this reader gets in time."""
        try:
            await reader.open()
            while True:
                message = await reader.next(wish.slice())
                if message is not None:
                    return reader, message
                if wish.left() == 0:
                    break
        except BaseException:
            self.drop(reader)
            raise
        self.take_back(reader, named=True)
        return None
