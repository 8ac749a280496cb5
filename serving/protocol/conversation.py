"""A conversation as canonical values: what every wire's history is read into and written from.

Invariants: messages are immutable; the parts of a message stand in the order in which they were said; the results of
one turn stand together in one ``TOOL`` message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from callwright.serving.protocol.values import Extra, Rejection, ToolCall, ToolResult


class MessageRole(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of plain text, and what a vendor tied to it."""

    text: str
    extra: Extra | None = None


Part = Text | ToolCall | Rejection | ToolResult | Extra


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Assistant messages hold text and calls (refused ones too), tool messages results; both, extras.

    ``truncated`` says that a vendor cut the reply off, so that its last call may be among the refused ones.
    """

    role: MessageRole
    parts: tuple[Part, ...] = ()
    truncated: bool = False

    @classmethod
    def of(cls, role: MessageRole, *parts: Part | str) -> Message:
        return cls(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall | Rejection, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall | Rejection))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    @property
    def extras(self) -> tuple[Extra, ...]:
        """The extras that are parts of their own, for ``echo``; those of texts and calls stay with them."""
        return tuple(part for part in self.parts if isinstance(part, Extra))


def with_places(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts, with every extra's ``place`` set to where it stands."""
    return tuple(
        Extra(part.wire, part.data, part.model, place) if isinstance(part, Extra) else part
        for place, part in enumerate(parts)
    )
