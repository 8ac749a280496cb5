"""The broker of one process and one event loop: no I/O, nothing survives it.

Invariants: those of the contract. A lane's leased message stays at its head, and such a lane is not free.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace

from callwright.serving.queues.broker import (
    MAX_DELIVERIES,
    BrokerClosed,
    Lease,
    LeaseLost,
    Message,
    QueueStats,
    dead_letters,
    refuse_second_death,
    why_given_up,
)
from callwright.serving.queues.waiters import Waiters


@dataclass(slots=True)
class _Queue:
    lanes: dict[str, deque[Message]] = field(default_factory=dict)
    free: dict[str, None] = field(default_factory=dict)  # lanes with a message and no lease, first come first served


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    expiry: asyncio.TimerHandle


class MemoryBroker:
    """See ``Broker``."""

    def __init__(self, *, max_deliveries: int = MAX_DELIVERIES) -> None:
        self._queues: dict[str, _Queue] = {}
        self._held: dict[int, _Held] = {}
        self._tokens = itertools.count(1)
        self._waiters = Waiters()
        self._max_deliveries = max_deliveries
        self._closed = False

    async def start(self, *queues: str) -> None:
        """There is nothing to reach."""

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        if self._closed:
            raise BrokerClosed(f"send to {queue}: the broker is closed")
        self._put(queue, Message(body, message_id, lane, sent_at=time.time()))

    async def receive(
        self, queue: str, *, timeout_s: float, lease_s: float = 30.0, lane: str | None = None
    ) -> Lease | None:
        target = self._queue(queue)
        with self._waiters.waiting(queue, lane) as ready:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        if self._closed:
                            raise BrokerClosed(f"receive from {queue}: the broker is closed")
                        lease = self._take(queue, target, lane, lease_s)
                        if lease is not None:
                            return lease
                        ready.clear()
                        await ready.wait()
            except TimeoutError:
                return None

    async def renew(self, lease: Lease, lease_s: float = 30.0) -> None:
        self._release(lease)
        self._hold(lease, lease_s)

    async def complete(self, lease: Lease) -> None:
        self._release(lease)
        self._drop_head(lease)

    async def abandon(self, lease: Lease) -> None:
        self._release(lease)
        self._give_back(lease)

    async def dead_letter(self, lease: Lease, *, code: str, reason: str) -> None:
        refuse_second_death(lease)
        self._release(lease)
        self._bury(lease, code, reason)

    async def peek(self, queue: str, limit: int = 100) -> list[Message]:
        lanes = self._queue(queue).lanes.values()
        return list(itertools.islice(itertools.chain.from_iterable(lanes), limit))

    async def stats(self, queue: str) -> QueueStats:
        messages = await self.peek(queue, limit=sys.maxsize)
        leased = sum(held.lease.queue == queue for held in self._held.values())
        oldest = min((message.sent_at for message in messages), default=None)
        return QueueStats(len(messages), leased, None if oldest is None else time.time() - oldest)

    async def close(self) -> None:
        self._closed = True
        for held in self._held.values():
            held.expiry.cancel()
        self._held.clear()
        self._waiters.wake_all()

    def _queue(self, name: str) -> _Queue:
        return self._queues.setdefault(name, _Queue())

    def _put(self, queue: str, message: Message) -> None:
        messages = self._queue(queue).lanes.setdefault(message.lane, deque())
        messages.append(message)
        if len(messages) == 1:
            self._free(queue, message.lane)

    def _free(self, queue: str, lane: str) -> None:
        """The head of ``lane`` can be leased."""
        self._queue(queue).free[lane] = None
        self._waiters.wake(queue, lane)

    def _take(self, name: str, queue: _Queue, lane: str | None, lease_s: float) -> Lease | None:
        chosen = next(iter(queue.free), None) if lane is None else lane
        if chosen is None or chosen not in queue.free:
            return None
        del queue.free[chosen]
        messages = queue.lanes[chosen]
        messages[0] = replace(messages[0], delivery_count=messages[0].delivery_count + 1)
        lease = Lease(name, messages[0], next(self._tokens))
        self._hold(lease, lease_s)
        return lease

    def _hold(self, lease: Lease, lease_s: float) -> None:
        expiry = asyncio.get_running_loop().call_later(lease_s, self._expire, lease)
        self._held[int(lease.token)] = _Held(lease, expiry)

    def _release(self, lease: Lease) -> None:
        held = self._held.pop(int(lease.token), None)
        if held is None:
            raise LeaseLost(f"the lease on a message of {lease.queue} had ended")
        held.expiry.cancel()

    def _expire(self, lease: Lease) -> None:
        if self._held.pop(int(lease.token), None) is not None:
            self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        why = why_given_up(lease.queue, lease.message.delivery_count, self._max_deliveries)
        if why is None:
            self._free(lease.queue, lease.message.lane)
        else:
            self._bury(lease, *why)

    def _bury(self, lease: Lease, code: str, reason: str) -> None:
        self._drop_head(lease)
        self._put(dead_letters(lease.queue), replace(lease.message, code=code, reason=reason))

    def _drop_head(self, lease: Lease) -> None:
        lanes, lane = self._queue(lease.queue).lanes, lease.message.lane
        lanes[lane].popleft()
        if lanes[lane]:
            self._free(lease.queue, lane)
        else:
            del lanes[lane]
