"""The azure-servicebus SDK at arm's length: where the connection string is, one receiver, and what an error says.

Invariants:
- The connection string is read from its environment variable when it is needed; nothing of ours keeps it, and no error
  shows it.
- A receiver of the SDK is used by one task at a time, and an operation that has begun is never cancelled: half a frame
  would be left on the connection.
- A session's lock is renewed for as long as its reader is open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from callwright.serving.errors import UserError
from callwright.serving.queues.broker import TOO_MANY_DELIVERIES, BrokerError, LeaseLost, Message

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

log = logging.getLogger(__name__)

CLOSE_S = 5.0  # what closing one link may take
RENEWAL_S = 10.0  # what one renewal of a lock may take
MIN_RENEWAL_S = 0.5  # between two
_SECRETS = re.compile(r"(SharedAccessKey|SharedAccessSignature|sig)=[^;&\s]+")


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the connection string is: the name of an environment variable."""

    variable: str

    def open(self, retries: int) -> ServiceBusClient:
        """A client. Raises UserError where the variable, what it holds, or the SDK is missing."""
        try:
            from azure.servicebus.aio import ServiceBusClient
        except ModuleNotFoundError:
            raise UserError("the servicebus broker needs its extra: pip install 'callwright[servicebus]'") from None
        text = self._text()
        if not text:
            raise UserError(f"set {self.variable} to the connection string of a Service Bus namespace")
        try:
            return ServiceBusClient.from_connection_string(text, retry_total=retries)
        except ValueError:
            raise UserError(f"{self.variable} does not hold the connection string of a Service Bus namespace") from None

    @property
    def endpoint(self) -> str:
        """The namespace's address, for messages."""
        found = re.search(r"Endpoint=([^;]+)", self._text())
        return found.group(1).rstrip("/") if found else f"the namespace of {self.variable}"

    def said(self, error: BaseException) -> str:
        """An error of the SDK as one line without secrets."""
        line = " ".join(str(error).split())
        for secret in _SECRETS.finditer(self._text()):
            line = line.replace(secret.group().partition("=")[2], "***")
        return type(error).__name__ + ": " + _SECRETS.sub(r"\1=***", line)

    @contextmanager
    def reported(self, what: str) -> Iterator[None]:
        """The boundary: whatever the SDK raises inside becomes a BrokerError that says ``what`` could not be done."""
        from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, SessionLockLostError

        try:
            yield
        except (UserError, BrokerError):
            raise
        except (MessageAlreadySettled, MessageLockLostError, SessionLockLostError) as error:
            raise LeaseLost(f"could not {what}: {self.said(error)}") from None
        except Exception as error:
            raise BrokerError(f"could not {what} at {self.endpoint}: {self.said(error)}") from None

    def _text(self) -> str:
        return os.environ.get(self.variable, "")


class Reader:
    """One receiver of the SDK: of one lane of a queue, or of its dead letters (``lane`` None)."""

    def __init__(self, queue: str, receiver: ServiceBusReceiver) -> None:
        self.queue = queue
        self.lane: str | None = None
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
        """Renew the lock at half its time, until it is lost: then whoever uses the reader next is told."""
        try:
            while True:
                await asyncio.sleep(max(self._lock_left() / 2, MIN_RENEWAL_S))
                async with self._one_at_a_time:
                    if self._receiver.session is not None:
                        await self._receiver.session.renew_lock(timeout=RENEWAL_S)
                    elif self._message is not None:
                        await self._receiver.renew_message_lock(self._message, timeout=RENEWAL_S)
        except Exception as error:
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
    )
