"""What of a sampled turn a client gets: the parser that also knows the client's own wishes, and calls that we refuse.

Invariants: a turn ends where the client said (its stop sequence, its one call), and ids up to there are kept; a call
that can be read at all reaches the client, whose tool judges its arguments; what can be no call reaches it as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callwright.serving.protocol import Event, EventType, Parser
from callwright.serving.protocol.dialects import Dialect, get_dialect
from callwright.serving.protocol.strict_json import StrictJSONError, decode
from callwright.serving.protocol.values import Rejection, RejectionCode, Tool, ToolCall, new_call_id

_KINDS = ("string", "integer", "number", "boolean", "null", "object", "array")


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of reasoning."""

    text: str


Piece = Think | str | ToolCall | Rejection


class ClientParser(Parser):
    """The dialect's parser for one reply. ``stopped_by`` is the stop sequence that ended the turn, if one did."""

    def __init__(self, dialect: str, tools: Sequence[Tool], stop: Sequence[str] = (), one_call: bool = False) -> None:
        super().__init__(dialect, [judged(tool) for tool in tools])
        self._stop = tuple(stop)
        self._one_call = one_call
        self._given = 0  # calls that went out
        self._held = ""  # text that may be the beginning of a stop sequence
        self._payload: Mapping[str, Any] | None = None  # of the held text
        self.stopped_by: str | None = None

    def feed(self, text: str) -> list[Event]:
        return self._wished(super().feed(text))

    def close(self) -> list[Event]:
        events = self._wished(super().close())
        return [*events, *self._release()]

    def _wished(self, events: list[Event]) -> list[Event]:
        """The events up to where the client wants the turn to end."""
        kept: list[Event] = []
        for place, event in enumerate(events):
            if event.type is EventType.RESPOND and self._stop and self.stopped_by is None:
                kept += self._watched(event)
            else:
                kept += self._release()
                kept.append(event)
                self._given += event.type is EventType.CALL
            if self._is_enough(event):
                del self.calls[self._given :]
                starts = [later for later in events[place + 1 :] if later.type is EventType.EXECUTE]
                return [*kept, *starts[:1], *self._over()]
        return kept

    def _is_enough(self, event: Event) -> bool:
        return self.stopped_by is not None or (self._one_call and event.type is EventType.CALL)

    def _over(self) -> list[Event]:
        if self.turn_over:
            return []
        self._end_turn(self._fed)
        return self._flush()

    def _watched(self, event: Event) -> list[Event]:
        text = self._held + event.content
        self._held, self._payload = "", event.payload
        found = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            return [replace(event, content=text[:at])] if at else []
        longest = min(len(text), max(map(len, self._stop)) - 1)
        held = next((n for n in range(longest, 0, -1) if any(s.startswith(text[-n:]) for s in self._stop)), 0)
        self._held = text[len(text) - held :]
        return [replace(event, content=text[: len(text) - held])] if held < len(text) else []

    def _release(self) -> list[Event]:
        held, self._held = self._held, ""
        return [Event(EventType.RESPOND, held, self._payload)] if held else []


class Pieces:
    """Turns the events of one turn, in order, into what a client gets. Reads the parser that gave them."""

    def __init__(self, parser: Parser, dialect: str, tools: Sequence[Tool]) -> None:
        self._parser = parser
        self._dialect = get_dialect(dialect)
        self._tools = tools
        self._calls = self._refused = 0

    def of(self, event: Event) -> Iterator[Piece]:
        if event.type is EventType.THINK and event.content:
            yield Think(event.content)
        elif event.type is EventType.RESPOND and event.content:
            yield event.content
        elif event.type is EventType.CALL:
            yield self._parser.calls[self._calls]
            self._calls += 1
        elif event.type is EventType.RESULT:
            yield from as_client_sees(self._parser.rejections[self._refused], self._dialect, self._tools)
            self._refused += 1


def as_client_sees(rejection: Rejection, dialect: Dialect, tools: Sequence[Tool]) -> list[Piece]:
    """A refused block: its calls where they can be read, a call with its raw arguments, or text."""
    names = {tool.name for tool in tools}
    found = list(_readable(rejection.raw, rejection.tool, dialect))
    if found and all(call is not None and call.name in names for call in found):
        return [call for call in found if call is not None]
    if rejection.code is RejectionCode.TRUNCATED:  # a part of a call is none
        return []
    if rejection.tool in names:
        return [replace(rejection, call_id=new_call_id())]
    return [rejection.raw] if rejection.raw else []


def _readable(raw: str, tool: str | None, dialect: Dialect) -> Iterator[ToolCall | None]:
    """Each call of a block's body, or None for what is none."""
    try:
        value = decode(raw)
    except StrictJSONError:
        return
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            yield None
        elif dialect.calls_per_turn == 1:  # the body is the arguments, and its tool's name
            yield ToolCall(tool, {k: v for k, v in item.items() if k != "type"}) if tool else None
        else:
            name, arguments = item.get("name"), item.get("arguments", item.get("args"))
            yield ToolCall(name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def judged(tool: Tool) -> Tool:
    """A client's tool as the parser judges its calls: by the kinds of its arguments alone, for the tags that need them.

    The rest of the schema is the client's to enforce, as with every vendor, and may hold words that we do not know.
    """
    properties = {name: _kind(schema) for name, schema in tool.properties.items()}
    return replace(tool, input_schema={"type": "object", "properties": properties})


def _kind(schema: Any) -> Mapping[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = kind if isinstance(kind, list) else [kind]
    return {"type": kind} if all(item in _KINDS for item in kinds) else {}
