"""The Service Bus links of one queue that take any lane.

Opening a link to the service takes half a second, so ``ACCEPTORS`` of them wait for the next free session, and one
whose message is settled lingers for ``LINGER_S``: a lane that is in use soon has its next message.

Invariants: only while someone receives are messages fetched; what is offered and not taken within ``HAND_OFF_S`` is let
go, for others to take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from callwright.serving.queues.background import Background
from callwright.serving.queues.broker import Message
from callwright.serving.queues.servicebus_link import Reader

ACCEPTORS = 4
FETCH_S = 0.5  # how long one look for a message takes
HAND_OFF_S = 1.0
LINGER_S = 3.0


@dataclass(slots=True)
class _Offer:
    """What waits for a receiver: a session, a session with its message, or an error. ``gone`` once it is taken."""

    reader: Reader
    message: Message | None = None
    error: Exception | None = None
    gone: bool = False


class Acceptors:
    """See above."""

    def __init__(self, new_reader: Callable[[], Reader], background: Background) -> None:
        self._new_reader = new_reader
        self._background = background
        self._offers: asyncio.Queue[_Offer] = asyncio.Queue()
        self._opening: set[asyncio.Task[None]] = set()
        self._lingering: dict[Reader, float] = {}  # until when
        self._closed = False

    async def get(self, wait_s: float) -> tuple[Reader, Message | None] | None:
        """A session, with its message where that is here already; None when none came. Raises what opening raised."""
        while len(self._opening) < ACCEPTORS:
            task = self._background.begin(self._accept())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        while self._lingering:
            self._background.begin(self._fetch(*self._lingering.popitem()))
        try:
            async with asyncio.timeout(wait_s):
                offer = await self._offers.get()
                while offer.gone:
                    offer = await self._offers.get()
        except TimeoutError:
            return None
        offer.gone = True
        if offer.error is not None:
            raise offer.error
        return offer.reader, offer.message

    def linger(self, reader: Reader) -> None:
        """The reader's message is settled."""
        if self._closed:
            self._background.begin(reader.close())
            return
        self._lingering[reader] = asyncio.get_running_loop().time() + LINGER_S
        asyncio.get_running_loop().call_later(LINGER_S, self._end_lingering, reader)

    def close(self) -> None:
        self._closed = True
        for task in self._opening:
            task.cancel()
        while not self._offers.empty():
            self._withdraw(self._offers.get_nowait())
        for reader in list(self._lingering):
            self._end_lingering(reader)

    async def _accept(self) -> None:
        from azure.servicebus.exceptions import OperationTimeoutError

        reader = self._new_reader()
        try:
            await reader.open()
        except OperationTimeoutError:
            await reader.close()
        except Exception as error:  # told to the next receiver
            await reader.close()
            self._offer(_Offer(reader, error=error))
        except asyncio.CancelledError:
            await reader.close()
            raise
        else:
            self._offer(_Offer(reader))

    async def _fetch(self, reader: Reader, until: float) -> None:
        """Look for the lane's next message. A link that broke while it lingered is closed: a new one tells why."""
        try:
            message = await reader.next(FETCH_S)
        except Exception:
            await reader.close()
            return
        if message is not None:
            self._offer(_Offer(reader, message))
        elif not self._closed and asyncio.get_running_loop().time() < until:
            self._lingering[reader] = until
        else:
            await reader.close()

    def _offer(self, offer: _Offer) -> None:
        self._offers.put_nowait(offer)
        asyncio.get_running_loop().call_later(0 if self._closed else HAND_OFF_S, self._withdraw, offer)

    def _withdraw(self, offer: _Offer) -> None:
        if not offer.gone and offer.error is None:
            self._background.begin(offer.reader.close())
        offer.gone = True

    def _end_lingering(self, reader: Reader) -> None:
        if self._lingering.pop(reader, None) is not None:
            self._background.begin(reader.close())
