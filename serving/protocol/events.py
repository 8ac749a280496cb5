"""The events a turn is made of. Eleven types, one immutable value; ``to_dict`` is the schema of the event stream."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    USER = "user"
    THINK = "think"
    CALL = "call"
    EXECUTE = "execute"
    RESULT = "result"
    RESPOND = "respond"
    END = "end"
    METRIC = "metric"
    ERROR = "error"
    INTERRUPT = "interrupt"
    CANCELLED = "cancelled"


PERSISTED = frozenset(
    {EventType.USER, EventType.THINK, EventType.CALL, EventType.RESULT, EventType.RESPOND, EventType.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn took, or several: tokens read and sampled, and seconds of wall clock."""

    input: int = 0
    output: int = 0
    duration: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.input + other.input, self.output + other.output, self.duration + other.duration)


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``content`` is text (JSON text for ``call`` and ``result``); ``payload`` is machine-readable.

    ``timestamp`` is Unix time in seconds and does not take part in equality.
    """

    type: EventType
    content: str = ""
    payload: Mapping[str, Any] | None = None
    timestamp: float = field(default_factory=time.time, compare=False)

    @property
    def persisted(self) -> bool:
        """Whether the event belongs to the conversation's stored history."""
        return self.type in PERSISTED

    def to_dict(self) -> dict[str, Any]:
        """The event as it leaves in a stream or a trace."""
        payload = None if self.payload is None else dict(self.payload)
        return {"type": str(self.type), "content": self.content, "payload": payload, "timestamp": self.timestamp}


def metric(step: Spent, total: Spent) -> Event:
    """What one turn took, and the conversation so far."""
    return Event(EventType.METRIC, "", {"step": asdict(step), "total": asdict(total)})
