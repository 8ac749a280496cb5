"""The reward queue: what an executor said, forwarded byte for byte, in the lane of the command it answers."""

from __future__ import annotations

from callwright.serving.queues.broker import REWARD_QUEUE, Broker, Lease


class RewardQueue:
    """Both ends of the reward queue. Invariant: a record is bytes, and is never parsed, wrapped or re-encoded here."""

    def __init__(self, broker: Broker, queue: str = REWARD_QUEUE) -> None:
        self.queue = queue
        self._broker = broker

    async def publish(self, record: bytes, *, lane: str, message_id: str) -> None:
        """Answer the command ``message_id`` of ``lane``. The id is an echo to verify; the pairing is by order."""
        await self._broker.send(self.queue, record, message_id=message_id, lane=lane)

    async def read(self, *, lane: str, timeout_s: float) -> Lease | None:
        """The next reply of ``lane``, leased; None when none came in time."""
        return await self._broker.receive(self.queue, lane=lane, timeout_s=timeout_s)

    async def accept(self, lease: Lease) -> None:
        """The reply was paired."""
        await self._broker.complete(lease)

    async def refuse(self, lease: Lease, *, code: str, reason: str) -> None:
        """The reply belongs to no call that still waits."""
        await self._broker.dead_letter(lease, code=code, reason=reason)
