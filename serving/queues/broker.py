"""The broker contract: what every queue back end gives, in the terms of Azure Service Bus.

Invariants of every implementation:
- the body travels byte for byte; ``message_id`` is telemetry, nothing is matched or dropped by it;
- a lane (a Service Bus session) is ordered, and has at most one leased message: the next waits until that is settled;
- a lease ends by itself at its deadline; the message is then delivered again, first in its lane, with
  ``delivery_count`` one higher; after ``max_deliveries`` it goes to the dead letters;
- a dead letter keeps its body, lane and id, and gains a code and a reason; dead letters are a queue like any other,
  under the name that ``dead_letters(queue)`` gives, except that they are received from any lane, no order is promised
  among them, and they stay, however often they are delivered;
- what ``send`` and the settling methods returned for is done, whatever kills the process afterwards (memory excepted);
- a cancelled receiver leaves no lease behind; every wait has a deadline given by the caller.

A queue without lanes is one lane, named ''.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from callwright.serving.errors import RunError

MAX_DELIVERIES = 10  # of one message, unless the broker is told otherwise
START_S = 10.0  # how long a broker may take to say that it cannot be reached


class BrokerError(RunError):
    """The broker failed, or was asked for something impossible. Never the policy's fault. One line."""


class BrokerClosed(BrokerError):
    """The broker was closed while, or before, it was asked."""


class LeaseLost(BrokerError):
    """The lease had ended before it was settled or renewed: someone else may hold the message now."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it was sent. ``delivery_count`` counts this delivery too. ``code`` and ``reason`` are there on a
    dead letter only. ``sent_at`` is the broker's own note of when, in Unix seconds."""

    body: bytes
    message_id: str = ""
    lane: str = ""
    delivery_count: int = 0
    code: str = ""
    reason: str = ""
    sent_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to settle one message until it runs out. ``token`` is the broker's own."""

    queue: str
    message: Message
    token: int | str


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How a queue stands: messages that are not settled, how many of them are leased (None where the back end does not
    tell), and seconds since the oldest was sent (None where there is none)."""

    depth: int
    leased: int | None
    oldest_s: float | None


class Broker(Protocol):
    """Queues with leases and ordered lanes. A queue exists as soon as it is named, where the back end allows that."""

    async def start(self, *queues: str) -> None:
        """Reach these queues, so that what is missing is said at once: BrokerError within ``START_S``, or UserError
        for a place that cannot be one. Optional."""
        ...

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        """Append to a lane. A message without an id may get one."""
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
        """Set the message aside, with why. Raises LeaseLost; BrokerError where it is a dead letter already."""
        ...

    async def peek(self, queue: str, limit: int = 100) -> list[Message]:
        """The first messages, leased ones included, without touching them; in order within each lane."""
        ...

    async def stats(self, queue: str) -> QueueStats:
        """How the queue stands. Of an unknown queue: empty."""
        ...

    async def close(self) -> None:
        """Wakes every waiting receiver with BrokerClosed. Safe to call twice."""
        ...


_DEAD = "/$deadletterqueue"
TOO_MANY_DELIVERIES = "max_deliveries"  # the code of a dead letter that nobody set aside


def dead_letters(queue: str) -> str:
    """The name of a queue's dead-letter queue."""
    return queue + _DEAD


def living(queue: str) -> str | None:
    """The queue whose dead letters ``queue`` holds; None where it holds none."""
    return queue.removesuffix(_DEAD) if queue.endswith(_DEAD) else None


def refuse_second_death(lease: Lease) -> None:
    """Raises BrokerError for a lease on a dead letter."""
    if living(lease.queue) is not None:
        raise BrokerError(f"a message of {lease.queue} is a dead letter already: complete or abandon it")


def why_given_up(queue: str, deliveries: int, limit: int) -> tuple[str, str] | None:
    """Code and reason for a message that comes back after its last delivery; None where it may be delivered again."""
    if deliveries < limit or living(queue) is not None:
        return None
    return TOO_MANY_DELIVERIES, f"delivered {deliveries} times, never completed"


COMMAND_QUEUE = "commandqueue"
REWARD_QUEUE = "rewardqueue"


def command_queue(tool: str) -> str:
    """The name of a tool's command queue."""
    return f"{COMMAND_QUEUE}-{tool}"
