"""From stored events to the messages of a context, in any dialect.

Invariants: the assistant's text parses into the events that it was made of; every call has a result, so a call whose
result was never stored is answered as cancelled; nothing that the system writes between markers holds a ``<``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from callwright.serving.protocol.dialects import Dialect, get_dialect
from callwright.serving.protocol.events import Event, EventType
from callwright.serving.protocol.rendering import MAX_CHARS
from callwright.serving.protocol.values import Rejection, RejectionCode, Tool, ToolCall, compact_json

Message = dict[str, str]


@dataclass(slots=True)
class _Turn:
    """One turn of the assistant, and what came back."""

    events: list[Event] = field(default_factory=list)
    results: list[Event] = field(default_factory=list)


def assemble(
    events: Iterable[Event],
    dialect: str = "tags",
    tools: Sequence[Tool] | None = None,
    *,
    system: str | None = None,
    max_chars: int = MAX_CHARS,
) -> list[Message]:
    """The messages of a conversation: role and content. Events that are not persisted are passed over.

    ``system`` is put first; ``max_chars`` bounds each result. Results that continue a turn stand in its message.
    """
    spoken = get_dialect(dialect)
    messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    turn = _Turn()

    def end_turn() -> None:
        nonlocal turn
        for part in _split(turn, spoken.calls_per_turn):
            _add(messages, "assistant", _text(part.events, spoken, tools))
            texts = _results(part, spoken, tools, max_chars)
            framed = "".join("".join(piece) for piece in spoken.frame_results(texts)) if texts else ""
            _add(messages, spoken.result_role or "assistant", framed)
        turn = _Turn()

    for event in events:
        if event.type is EventType.USER:
            end_turn()
            messages.append({"role": "user", "content": event.content})
        elif event.type is EventType.RESULT:
            turn.results.append(event)
        elif event.type in (EventType.THINK, EventType.CALL, EventType.RESPOND):
            if turn.results:
                end_turn()
            turn.events.append(event)
    end_turn()
    return messages


def _add(messages: list[Message], role: str, content: str) -> None:
    """Results in an assistant's role continue the assistant's message, and so does the turn behind them."""
    if not content:
        return
    if role == "assistant" and messages and messages[-1]["role"] == "assistant":
        messages[-1]["content"] += content
    else:
        messages.append({"role": role, "content": content})


def _split(turn: _Turn, calls: int | None) -> list[_Turn]:
    """A turn as turns of at most so many calls, for a dialect that allows no more than one."""
    if calls != 1:
        return [turn]
    parts = [_Turn()]
    results = [event for event in turn.results if _rejection(event) is None]
    for event in turn.events:
        parts[-1].events.append(event)
        if event.type is EventType.CALL:
            parts[-1].results += results[:1]
            results = results[1:]
            parts.append(_Turn())
    parts[-1].results += [*results, *(event for event in turn.results if _rejection(event) is not None)]
    return parts


def _text(events: Sequence[Event], dialect: Dialect, tools: Sequence[Tool] | None) -> str:
    """What the assistant wrote, in the dialect's own words."""
    openers = [block.opener for block in dialect.blocks(tools)]
    if dialect.call_blocks_per_turn == 1:  # what follows its block would be discarded
        events = sorted(events, key=lambda event: event.type is EventType.CALL)
    parts: list[str] = []
    for (kind, channel), group in groupby(events, lambda event: (event.type, (event.payload or {}).get("channel"))):
        run = list(group)
        if kind is EventType.CALL:
            parts.append(dialect.render_calls([_call(event) for event in run]))
            continue
        pieces = [event.content for event in run]
        is_open = any((event.payload or {}).get("incomplete") for event in run)
        if kind is EventType.THINK:
            parts.append("<think>" + _joined(pieces, ["</think>"]) + ("" if is_open else "</think>"))
        elif channel is not None:
            text = _joined(pieces, [dialect.answer_close or "<"])
            parts.append(dialect.answer_open + text + ("" if is_open else dialect.answer_close))
        else:
            parts.append(_joined(pieces, openers))
    return "".join(parts)


def _joined(pieces: Sequence[str], markers: Sequence[str]) -> str:
    """Text whose pieces stood on both sides of something else, kept from growing together into a marker."""
    longest = max(map(len, markers))
    joined: list[str] = []
    tail = ""
    for piece in pieces:
        if any(marker in tail + piece[:longest] for marker in markers):
            piece = "\n" + piece
        joined.append(piece)
        tail = (tail + piece)[-longest:]
    return "".join(joined)


def _call(event: Event) -> ToolCall:
    value = json.loads(event.content)
    return ToolCall(value["name"], value["args"])


def _results(turn: _Turn, dialect: Dialect, tools: Sequence[Tool] | None, max_chars: int) -> list[str]:
    """The results of a turn in the order of its calls; refused calls come behind."""
    calls = [_call(event) for event in turn.events if event.type is EventType.CALL]
    records = [event.content for event in turn.results if _rejection(event) is None]
    # A call without a result was cut off, by a kill or by whoever asked next.
    cancelled = compact_json({"status": "cancelled", "message": "the call was cancelled; nothing came back"})
    records += [cancelled] * (len(calls) - len(records))
    names: list[str | None] = [call.name for call in calls]
    names += [None] * (len(records) - len(calls))
    texts = [
        dialect.render_result(record.encode(errors="replace"), name, max_chars).text
        for record, name in zip(records, names, strict=True)
    ]
    refused = [rejection for event in turn.results if (rejection := _rejection(event)) is not None]
    return texts + [dialect.render_rejection(rejection, tools, max_chars).text for rejection in refused]


def _rejection(event: Event) -> Rejection | None:
    told = (event.payload or {}).get("rejection")
    if told is None:
        return None
    return Rejection(RejectionCode(told["code"]), told["message"], told["offset"], told["tool"])
