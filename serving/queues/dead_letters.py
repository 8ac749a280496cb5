"""What an operator can do with dead letters: send them again, or throw them away.

Invariant: only those that are there at the start are touched, so a message that dies again at once does not go round.
A kill in the middle loses none; the one in hand may then be sent twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from callwright.serving.queues.broker import Broker, Lease, dead_letters

_AT_ONCE_S = 0.2


async def replay(broker: Broker, queue: str) -> int:
    """Send the dead letters of ``queue`` again, each in its lane; returns how many. Raises BrokerError."""
    count = 0
    async for lease in _each(broker, queue):
        message = lease.message
        await broker.send(queue, message.body, message_id=message.message_id, lane=message.lane)
        await broker.complete(lease)
        count += 1
    return count


async def discard(broker: Broker, queue: str) -> int:
    """Remove the dead letters of ``queue``; returns how many. Raises BrokerError."""
    count = 0
    async for lease in _each(broker, queue):
        await broker.complete(lease)
        count += 1
    return count


async def _each(broker: Broker, queue: str) -> AsyncIterator[Lease]:
    source = dead_letters(queue)
    for _ in range((await broker.stats(source)).depth):
        lease = await broker.receive(source, timeout_s=_AT_ONCE_S)
        if lease is None:
            return
        yield lease
