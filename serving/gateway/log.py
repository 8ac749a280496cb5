"""What happens in a conversation, as events: all eleven types occur here.

Invariants: the events of a turn stand in the order in which they happened; neighbouring pieces of one kind are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from callwright.serving.protocol import Event, EventType
from callwright.serving.protocol.conversation import Message, MessageRole, Text
from callwright.serving.protocol.values import ResultStatus, ToolCall, compact_json

_GROWING = (EventType.THINK, EventType.RESPOND)


def asked(messages: Sequence[Message]) -> list[Event]:
    """What the client said since the last turn; of a history that is not ours, the assistant's part too."""
    events: list[Event] = []
    for message in messages:
        if message.role is MessageRole.USER:
            events.append(Event(EventType.USER, message.text))
        for part in message.parts if message.role is MessageRole.ASSISTANT else ():
            if isinstance(part, Text):
                events.append(Event(EventType.RESPOND, part.text))
            elif isinstance(part, ToolCall):
                events.append(Event(EventType.CALL, compact_json({"name": part.name, "args": dict(part.arguments)})))
        for result in message.results:
            ok = int(result.status is ResultStatus.SUCCESS)
            counts = {"tools_executed": 1, "success_count": ok, "failure_count": 1 - ok}
            events.append(Event(EventType.RESULT, result.content, counts))
    return events


def sampled(events: Iterable[Event], *, ended: bool) -> list[Event]:
    """The model's own events; a reply without a call ends the conversation until the client speaks again."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if last is not None and event.type in _GROWING and (last.type, last.payload) == (event.type, event.payload):
            found[-1] = replace(last, content=last.content + event.content)
        else:
            found.append(event)
    if ended and not any(event.type is EventType.END for event in found):
        found.append(Event(EventType.END))
    return found


def failed(cause: str) -> Event:
    return Event(EventType.ERROR, cause)


def cancelled(*, interrupted: bool) -> list[Event]:
    """The turn was given up: by the client, or by the server that stops."""
    return [*([Event(EventType.INTERRUPT)] if interrupted else []), Event(EventType.CANCELLED)]
