"""One receiver of the azure-servicebus SDK: a session, or the dead letters of a queue; lanes and messages as ours.

Invariants:
- A receiver of the SDK is used by one task at a time, and an operation that has begun is never cancelled: half a frame
  would be left on the connection.
- A session's lock is renewed for as long as its reader is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from callwright.serving.queues.broker import TOO_MANY_DELIVERIES, LeaseLost, Message

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

log = logging.getLogger(__name__)

CLOSE_S = 5.0  # what closing one link may take
RENEWAL_S = 10.0  # what one renewal of a lock may take
MIN_RENEWAL_S = 0.5  # between two


class Reader:
    """One receiver of the SDK: of one lane of a queue, or of its dead letters (``lane`` None)."""

    def __init__(self, queue: str, receiver: ServiceBusReceiver) -> None:
        self.queue = queue
        self.lane: str | None = None
        self.lost = False  # the lock could not be renewed
        self._receiver = receiver
        self._one_at_a_time = asyncio.Lock()
        self._message: ServiceBusReceivedMessage | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Attach, unless it was done before; for the next free session, wait for it. Raises what the SDK raises."""
        if self._keeper is not None:
            return
        await self._receiver.__aenter__()
        session = self._receiver.session
        if session is not None:
            self.lane = lane_of(session.session_id)
        self._keeper = asyncio.create_task(self._keep(), name=f"lock on {self.queue}")

    @property
    def refused(self) -> bool:
        """Whether the session that was asked for by name is another's: a link that is refused has none."""
        return self._receiver.session is not None and not self._receiver.session.session_id

    async def next(self, wait_s: float) -> Message | None:
        """The next message, locked; None when none came."""
        async with self._one_at_a_time:
            found = await self._receiver.receive_messages(max_message_count=1, max_wait_time=wait_s)
        if not found:
            return None
        self._message = found[0]
        return message_of(found[0], delivered=True)

    async def peek(self, limit: int) -> list[Message]:
        """The first messages of what is read here."""
        async with self._one_at_a_time:
            found = await self._receiver.peek_messages(limit, sequence_number=1)
        return [message_of(message, delivered=False) for message in found]

    async def complete(self) -> None:
        async with self._settling() as message:
            await self._receiver.complete_message(message)

    async def abandon(self) -> None:
        async with self._settling() as message:
            await self._receiver.abandon_message(message)

    async def dead_letter(self, code: str, reason: str) -> None:
        async with self._settling() as message:
            await self._receiver.dead_letter_message(message, reason=code, error_description=reason)

    async def close(self) -> None:
        """Detach. What is locked and not settled comes again. Never raises: a link that cannot be closed is dropped."""
        if self._keeper is not None:
            self._keeper.cancel()
        try:
            async with asyncio.timeout(CLOSE_S), self._one_at_a_time:
                await self._receiver.close()
        except Exception as error:  # the other side is gone, or no longer answers
            log.info("a link to %s did not close: %s", self.queue, type(error).__name__)

    @asynccontextmanager
    async def _settling(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        async with self._one_at_a_time:
            if self._message is None:
                raise LeaseLost(f"the lease on a message of {self.queue} had ended")
            yield self._message
            self._message = None

    async def _keep(self) -> None:
        """Renew the lock at half its time, until that fails."""
        try:
            while True:
                await asyncio.sleep(max(self._lock_left() / 2, MIN_RENEWAL_S))
                async with self._one_at_a_time:
                    if self._receiver.session is not None:
                        await self._receiver.session.renew_lock(timeout=RENEWAL_S)
                    elif self._message is not None:
                        await self._receiver.renew_message_lock(self._message, timeout=RENEWAL_S)
        except Exception as error:
            self.lost = True
            log.info("the lock on %s was not renewed: %s", self.queue, type(error).__name__)

    def _lock_left(self) -> float:
        holder = self._receiver.session or self._message
        until = None if holder is None else holder.locked_until_utc
        return 0.0 if until is None else (until - datetime.now(UTC)).total_seconds()


# A session must have a name, so the lane without one has '~', and the names that begin so are kept apart from it.
def session_of(lane: str) -> str:
    """The session that stands for a lane."""
    return "~" + lane if lane == "" or lane.startswith("~") else lane


def lane_of(session: str) -> str:
    """The lane that a session stands for."""
    return session.removeprefix("~")


PROBE_SESSION = "~probe"  # stands for no lane


def message_of(message: ServiceBusReceivedMessage, *, delivered: bool) -> Message:
    """Our value of the SDK's. The service counts the deliveries that failed; ours counts this one too."""
    body = message.body
    reason = message.dead_letter_reason or ""
    return Message(
        body=body if isinstance(body, bytes) else b"".join(body),
        message_id=message.message_id or "",
        lane=lane_of(message.session_id or ""),
        delivery_count=(message.delivery_count or 0) + delivered,
        code=TOO_MANY_DELIVERIES if reason == "MaxDeliveryCountExceeded" else reason,
        reason=message.dead_letter_error_description or "",
        sent_at=message.enqueued_time_utc.timestamp() if message.enqueued_time_utc else 0.0,
    )
