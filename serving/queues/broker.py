"""The broker contract: what every queue back end gives, in the terms of Azure Service Bus.

Invariants of every implementation:
- the body travels byte for byte; ``message_id`` is telemetry, nothing is matched or dropped by it;
- a lane (a Service Bus session) is ordered, and has at most one leased message: the next waits until that is settled;
- a lease ends by itself at its deadline; the message is then delivered again, first in its lane, with
  ``delivery_count`` one higher; after ``max_deliveries`` it goes to the dead letters;
- a dead letter keeps its body, lane and id, and gains a code and a reason; dead letters are a queue like any other,
  under the name that ``dead_letters(queue)`` gives;
- every wait has a deadline given by the caller.

A queue without lanes is one lane, named ''.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class BrokerError(Exception):
    """The broker failed, or was asked for something impossible. Never the policy's fault."""


class BrokerClosed(BrokerError):
    """The broker was closed while, or before, it was asked."""


class LeaseLost(BrokerError):
    """The lease had ended before it was settled or renewed: someone else may hold the message now."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it was sent. ``delivery_count`` counts this delivery too. ``code`` and ``reason`` are there on a
    dead letter only."""

    body: bytes
    message_id: str = ""
    lane: str = ""
    delivery_count: int = 0
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to settle one message until it runs out. ``token`` is the broker's own."""

    queue: str
    message: Message
    token: int | str


class Broker(Protocol):
    """Queues with leases and ordered lanes. A queue exists as soon as it is named, where the back end allows that."""

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        """Append to a lane."""
        ...

    async def receive(
        self, queue: str, *, timeout_s: float, lease_s: float = 30.0, lane: str | None = None
    ) -> Lease | None:
        """Lease the first message of ``lane``, or of any lane that has none leased. None when the wait is over."""
        ...

    async def renew(self, lease: Lease, lease_s: float = 30.0) -> None:
        """Let the lease end ``lease_s`` from now. Raises LeaseLost."""
        ...

    async def complete(self, lease: Lease) -> None:
        """The message is done with. Raises LeaseLost."""
        ...

    async def abandon(self, lease: Lease) -> None:
        """Give the message back, to be delivered again first in its lane. Raises LeaseLost."""
        ...

    async def dead_letter(self, lease: Lease, *, code: str, reason: str) -> None:
        """Set the message aside, with why. Raises LeaseLost."""
        ...

    async def peek(self, queue: str, limit: int = 100) -> list[Message]:
        """The first messages, leased ones included, without touching them."""
        ...

    async def close(self) -> None:
        """Wakes every waiting receiver with BrokerClosed."""
        ...


def dead_letters(queue: str) -> str:
    """The name of a queue's dead-letter queue."""
    return f"{queue}/$deadletterqueue"


COMMAND_QUEUE = "commandqueue"
REWARD_QUEUE = "rewardqueue"


def command_queue(tool: str) -> str:
    """The name of a tool's command queue."""
    return f"{COMMAND_QUEUE}-{tool}"
