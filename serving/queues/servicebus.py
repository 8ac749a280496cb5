"""The broker of several machines: an Azure Service Bus namespace, through the official SDK.

Invariants: those of the contract, in the service's own means: a lane is a session, a lease is a session's lock and one
message of it. The service's locks have lengths of their own: a lease ends at the time that it was asked for because
this process then gives the message back or, where the process is gone, when the lock ends.

The queues must exist, with sessions on and duplicate detection off (the id is telemetry, and may repeat). How often a
message is delivered before it is a dead letter is the queue's own setting.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callwright.serving.queues.background import Background
from callwright.serving.queues.broker import (
    START_S,
    BrokerClosed,
    BrokerError,
    Lease,
    LeaseLost,
    Message,
    QueueStats,
    living,
    refuse_second_death,
)
from callwright.serving.queues.servicebus_connection import Connection
from callwright.serving.queues.servicebus_finding import MIN_WAIT_S, Finder, Found, Wish
from callwright.serving.queues.servicebus_link import PROBE_SESSION, Reader, lane_of, session_of

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

SEND_S = 30.0  # what sending one message may take
GRACE_S = 15.0  # what opening a link may take beyond the time that a receiver waits for its message
STATS_LIMIT = 1000  # messages that are counted, at most
RETRIES = 2  # of a send whose link was lost; reading makes a new link instead


@dataclass(slots=True)
class _Held:
    """A lease. ``expiry`` gives the message back."""

    reader: Reader
    named: bool  # its lane was asked for by name
    expiry: asyncio.TimerHandle


class ServiceBusBroker:
    """See ``Broker``. ``variable`` names the environment variable with the connection string; the name of every queue
    in the namespace begins with ``prefix``."""

    def __init__(self, variable: str, *, prefix: str = "") -> None:
        self._connection = Connection(variable)
        self._prefix = prefix
        self._clients: dict[int, ServiceBusClient] = {}
        self._senders: dict[str, tuple[ServiceBusSender, asyncio.Lock]] = {}
        self._held: dict[str, _Held] = {}
        self._background = Background()
        self._finder = Finder(self._new_reader, self._background)
        self._closed = asyncio.Event()

    async def start(self, *queues: str) -> None:
        try:
            async with asyncio.timeout(START_S):
                await asyncio.gather(*(self._probe(queue) for queue in queues))
        except TimeoutError:
            raise BrokerError(f"no answer from {self._connection.endpoint} within {START_S:g} s") from None

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        self._check_open()
        await asyncio.shield(self._background.begin(self._send(queue, body, message_id, lane)))

    async def receive(
        self, queue: str, *, timeout_s: float, lease_s: float = 30.0, lane: str | None = None
    ) -> Lease | None:
        self._check_open()
        wish = Wish(queue, lane, asyncio.get_running_loop().time() + timeout_s)
        finding = self._background.begin(self._find(wish))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            limit_s = timeout_s + GRACE_S
            await asyncio.wait({finding, closing}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._forsake(wish, finding)
            raise
        finally:
            closing.cancel()
        if self._closed.is_set() or not finding.done():
            self._forsake(wish, finding)
            self._check_open()
            raise BrokerError(f"no answer from {self._connection.endpoint} about {queue} within {limit_s:g} s")
        found = finding.result()
        return None if found is None else self._hold(wish, *found, lease_s)

    async def renew(self, lease: Lease, lease_s: float = 30.0) -> None:
        held = self._held.get(str(lease.token))
        if held is None or held.reader.lost:
            raise LeaseLost(f"the lease on a message of {lease.queue} had ended")
        held.expiry.cancel()
        held.expiry = self._expire_in(lease_s, str(lease.token))

    async def complete(self, lease: Lease) -> None:
        held = self._release(lease)
        await self._settle(held, held.reader.complete())

    async def abandon(self, lease: Lease) -> None:
        held = self._release(lease)
        await self._settle(held, held.reader.abandon())

    async def dead_letter(self, lease: Lease, *, code: str, reason: str) -> None:
        refuse_second_death(lease)
        held = self._release(lease)
        await self._settle(held, held.reader.dead_letter(code, reason))

    async def peek(self, queue: str, limit: int = 100) -> list[Message]:
        """See ``Broker``. A lane that others hold is not seen: the service shows a session to its holder alone."""
        self._check_open()
        return await asyncio.shield(self._background.begin(self._peek(queue, limit)))

    async def stats(self, queue: str) -> QueueStats:
        """See ``Broker``. Counts up to STATS_LIMIT; a lane that others hold counts as one message, leased, of no known
        age; which dead letters are leased is not known."""
        self._check_open()
        return await asyncio.shield(self._background.begin(self._stats(queue)))

    async def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        for held in self._held.values():
            held.expiry.cancel()
            self._background.begin(held.reader.close())
        self._held.clear()
        self._finder.close()
        await self._background.finish(GRACE_S)
        for client in self._clients.values():
            with self._connection.reported("close the client"):
                await client.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise BrokerClosed("the servicebus broker is closed")

    def _client(self, retries: int) -> ServiceBusClient:
        if retries not in self._clients:
            self._clients[retries] = self._connection.open(retries)
        return self._clients[retries]

    def _new_reader(self, queue: str, session: str | None, wait_s: float | None) -> Reader:
        client, source = self._client(0), living(queue)  # first of all: it says where the SDK is missing
        from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue

        if source is not None:
            dead = ServiceBusSubQueue.DEAD_LETTER
            return Reader(queue, client.get_queue_receiver(self._prefix + source, sub_queue=dead))
        chosen = NEXT_AVAILABLE_SESSION if session is None else session
        return Reader(queue, client.get_queue_receiver(self._prefix + queue, session_id=chosen, max_wait_time=wait_s))

    async def _probe(self, queue: str) -> None:
        with self._connection.reported(f"read {self._prefix}{queue} (it must exist, with sessions on)"):
            reader = self._new_reader(queue, PROBE_SESSION, None)
            try:
                await reader.open()
                await reader.next(MIN_WAIT_S)
            finally:
                self._background.begin(reader.close())

    async def _send(self, queue: str, body: bytes, message_id: str, lane: str) -> None:
        with self._connection.reported(f"send to {self._prefix}{queue}"):
            if queue not in self._senders:
                self._senders[queue] = self._client(RETRIES).get_queue_sender(self._prefix + queue), asyncio.Lock()
            from azure.servicebus import ServiceBusMessage  # after the client: that says which extra is missing

            message = ServiceBusMessage(body, session_id=session_of(lane), message_id=message_id or None)
            sender, one_at_a_time = self._senders[queue]
            async with one_at_a_time:
                await sender.send_messages(message, timeout=SEND_S)

    async def _find(self, wish: Wish) -> Found | None:
        with self._connection.reported(f"receive from {self._prefix}{wish.queue}"):
            self._client(0)
            return await self._finder.find(wish)

    def _forsake(self, wish: Wish, finding: asyncio.Task[Found | None]) -> None:
        """Nobody waits for this search any more: what it still finds is let go unseen."""
        wish.over = True

        def let_go(done: asyncio.Task[Found | None]) -> None:
            if not done.cancelled() and done.exception() is None and (found := done.result()) is not None:
                self._finder.drop(found[0])

        finding.add_done_callback(let_go)

    def _hold(self, wish: Wish, reader: Reader, message: Message, lease_s: float) -> Lease:
        token = uuid.uuid4().hex
        self._held[token] = _Held(reader, wish.lane is not None, self._expire_in(lease_s, token))
        return Lease(wish.queue, message, token)

    def _expire_in(self, lease_s: float, token: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(lease_s, self._expire, token)

    def _expire(self, token: str) -> None:
        held = self._held.pop(token, None)
        if held is not None:
            self._background.begin(self._settled(held, held.reader.abandon()))

    def _release(self, lease: Lease) -> _Held:
        self._check_open()
        held = self._held.pop(str(lease.token), None)
        if held is None:
            raise LeaseLost(f"the lease on a message of {lease.queue} had ended")
        held.expiry.cancel()
        return held

    async def _settle(self, held: _Held, settling: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(self._background.begin(self._settled(held, settling)))

    async def _settled(self, held: _Held, settling: Coroutine[Any, Any, None]) -> None:
        try:
            with self._connection.reported(f"settle a message of {self._prefix}{held.reader.queue}"):
                await settling
        except BrokerError:
            self._finder.drop(held.reader)
            raise
        self._finder.take_back(held.reader, named=held.named)

    async def _peek(self, queue: str, limit: int) -> list[Message]:
        with self._connection.reported(f"peek at {self._prefix}{queue}"):
            if living(queue) is not None:
                return await self._peek_with(self._new_reader(queue, None, None), limit) or []
            found: list[Message] = []
            for session in await self._sessions(queue):
                found += await self._peek_in(queue, session, limit - len(found)) or []
            return found

    async def _stats(self, queue: str) -> QueueStats:
        with self._connection.reported(f"count {self._prefix}{queue}"):
            if living(queue) is not None:
                seen = await self._peek_with(self._new_reader(queue, None, None), STATS_LIMIT) or []
                return QueueStats(len(seen), None, _age(seen))
            seen, of_others = [], 0
            for session in await self._sessions(queue):
                found = await self._peek_in(queue, session, STATS_LIMIT - len(seen))
                of_others += found is None
                seen += found or []
            leased = sum(held.reader.queue == queue for held in self._held.values())
            return QueueStats(len(seen) + of_others, leased + of_others, _age(seen))

    async def _sessions(self, queue: str) -> list[str]:
        return [session async for session in self._client(0).list_queue_sessions(self._prefix + queue)]

    async def _peek_in(self, queue: str, session: str, limit: int) -> list[Message] | None:
        """What is in a session; None where others hold it."""
        if limit <= 0:
            return []
        lane = lane_of(session)
        leased = [held.reader for held in self._held.values() if (held.reader.queue, held.reader.lane) == (queue, lane)]
        own = leased[0] if leased else self._finder.idle(queue, lane)
        if own is not None:
            return await own.peek(limit)
        return await self._peek_with(self._new_reader(queue, session, None), limit)

    async def _peek_with(self, reader: Reader, limit: int) -> list[Message] | None:
        """What it reads; None where its session is another's."""
        from azure.servicebus.exceptions import SessionCannotBeLockedError

        try:
            await reader.open()
            return None if reader.refused else await reader.peek(limit)
        except SessionCannotBeLockedError:
            return None
        finally:
            await reader.close()


def _age(messages: list[Message]) -> float | None:
    """Seconds since the oldest was sent."""
    return time.time() - min(message.sent_at for message in messages) if messages else None
