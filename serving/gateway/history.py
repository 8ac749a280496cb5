"""What was served, remembered by what a client must send back to go on from it.

Invariants: a turn is found only by the whole conversation that led to it and its reply, as canonical values (ids and
reasoning apart, which clients may drop); segments are sampled ids or given ones, and never change; a conversation that
forks is two from there on.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from callwright.serving.engines.engine import Completion
from callwright.serving.protocol.conversation import Message, MessageRole, Text
from callwright.serving.protocol.events import Spent
from callwright.serving.protocol.values import Rejection, Tool, ToolCall, ToolResult, compact_json

Given = tuple[int, ...]
Segment = Completion | Given


@dataclass(frozen=True, slots=True)
class Turn:
    """One served turn and all before it. ``ids`` is the whole context, the reply included."""

    conversation: str
    number: int
    segments: tuple[Segment, ...]
    said: Message
    spent: Spent  # by all turns together

    @property
    def ids(self) -> list[int]:
        return [token for segment in self.segments for token in ids_of(segment)]


def ids_of(segment: Segment) -> tuple[int, ...]:
    return segment.ids if isinstance(segment, Completion) else segment


def new_conversation() -> str:
    return os.urandom(12).hex()


def prints(tools: Sequence[Tool], messages: Sequence[Message]) -> list[str]:
    """The fingerprint of a conversation after each of its messages."""
    digest = hashlib.sha256(compact_json([[t.name, t.description, dict(t.input_schema)] for t in tools]).encode())
    found = []
    for message in messages:
        text = compact_json([str(message.role), *_parts(message)])
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        found.append(digest.hexdigest())
    return found


def _parts(message: Message) -> list[object]:
    """The message, as far as every client sends it back: text apart from calls, and neither ids nor reasoning."""
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    others: list[object] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            others.append([part.name, dict(part.arguments)])
        elif isinstance(part, Rejection):
            others.append([part.tool, part.raw])
        elif isinstance(part, ToolResult):
            others.append([part.tool, str(part.status), part.content])
    return [text.strip() if message.role is MessageRole.ASSISTANT else text, others]


@dataclass(slots=True)
class History:
    """The last ``limit`` turns. ``forget`` is told of a conversation of which nothing is left."""

    limit: int
    forget: Callable[[str], None]
    _turns: OrderedDict[str, Turn] = field(default_factory=OrderedDict)
    _last: dict[str, int] = field(default_factory=dict)  # conversation to the number of its last turn
    _held: dict[str, int] = field(default_factory=dict)  # conversation to how many of its turns are remembered
    _busy: set[str] = field(default_factory=set)

    def find(self, tools: Sequence[Tool], messages: Sequence[Message]) -> tuple[Turn | None, int]:
        """The turn that the request goes on from, and how many of its messages that turn covers; else None and 0."""
        last = max((n for n, m in enumerate(messages) if m.role is MessageRole.ASSISTANT), default=-1)
        if last < 0 or last == len(messages) - 1:  # a reply that is to be continued is no turn of its own
            return None, 0
        turn = self._turns.get(prints(tools, messages[: last + 1])[-1])
        return turn, last + 1 if turn is not None else 0

    def begin(self, turn: Turn | None) -> tuple[str, int]:
        """The conversation and number of the turn that follows, now under way: a new one where there is none, or where
        another request goes on, or went on, from the same place."""
        if (
            turn is not None
            and self._last.get(turn.conversation) == turn.number
            and turn.conversation not in self._busy
        ):
            name, number = turn.conversation, turn.number + 1
        else:
            name, number = new_conversation(), 1 if turn is None else turn.number + 1
        self._busy.add(name)
        return name, number

    def end(self, conversation: str, turn: Turn | None, tools: Sequence[Tool], messages: Sequence[Message]) -> None:
        """A turn is over; with ``turn`` it can be gone on from."""
        self._busy.discard(conversation)
        if turn is None:
            self._let_go(conversation)
            return
        name = prints(tools, [*messages, turn.said])[-1]
        self._drop(name)
        self._turns[name] = turn
        self._last[conversation] = turn.number
        self._held[conversation] = self._held.get(conversation, 0) + 1
        while len(self._turns) > self.limit:
            self._drop(next(iter(self._turns)))

    def _drop(self, name: str) -> None:
        turn = self._turns.pop(name, None)
        if turn is not None:
            self._held[turn.conversation] -= 1
            self._let_go(turn.conversation)

    def _let_go(self, conversation: str) -> None:
        if self._held.get(conversation, 0) == 0 and conversation not in self._busy:
            self._held.pop(conversation, None)
            self._last.pop(conversation, None)
            self.forget(conversation)
