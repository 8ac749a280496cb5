"""What every reply has: who answers, why it ended, what it cost; and the writer that each wire implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from callwright.serving.protocol.conversation import Message
from callwright.serving.protocol.values import Rejection, ToolCall
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.context import Context


class Finish(StrEnum):
    STOP = "stop"  # the model ended its turn
    CALLS = "calls"  # the turn ended in calls
    LENGTH = "length"  # a limit cut it off


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. ``reasoning`` are those of ``output`` that were thinking; ``cached`` those of ``input`` read again."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Head:
    """``id`` without the vendor's prefix; ``created`` in seconds since 1970."""

    id: str
    model: str
    created: int


class StreamWriter(ABC):
    """Writes one reply. Every method gives the chunks that go out now; ``start`` comes first and ``end`` last."""

    fmt: ClassVar[WireFormat]

    def __init__(self, head: Head) -> None:
        self.head = head
        self.ctx = Context(self.fmt, serving=True)
        self.stop_sequence: str | None = None  # the client's own, where it ended the reply; one wire says so

    @abstractmethod
    def start(self) -> list[Json]: ...

    @abstractmethod
    def think(self, piece: str) -> list[Json]: ...

    @abstractmethod
    def text(self, piece: str) -> list[Json]: ...

    @abstractmethod
    def call(self, call: ToolCall | Rejection) -> list[Json]: ...

    @abstractmethod
    def end(self, finish: Finish, usage: Usage) -> list[Json]: ...

    @abstractmethod
    def whole(self, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
        """The reply in one piece, instead of all the others."""
