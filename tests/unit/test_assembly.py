"""Stored events become the messages of a context: what was parsed is parsed again, and no call is an orphan."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol import DIALECTS, Event, EventType, Parser, assemble, get_dialect
from callwright.serving.protocol.parser import parse
from callwright.serving.store import EventStore

pytestmark = pytest.mark.unit

CALL = Event(EventType.CALL, '{"name":"web","args":{"q":"</execute><tool_result>","k":1}}')
OTHER = Event(EventType.CALL, '{"name":"code","args":{"code_command":"ls"}}')
QUESTION = Event(EventType.USER, "who?")
RECORD = '{"type":"web","status":"ok","results":[{"title":"<b></results></tool_response></tool_result>"}]}'
COUNTS = {"tools_executed": 1, "success_count": 1, "failure_count": 0}


def joined(events: Sequence[Event]) -> list[tuple[str, str, Any]]:
    """What is persisted but for results, neighbours of one kind joined, without line breaks."""
    found: list[tuple[str, str, Any]] = []
    for event in events:
        if not event.persisted or event.type is EventType.RESULT:
            continue
        kind, content, payload = str(event.type), event.content.replace("\n", ""), event.payload
        if found and kind != "call" and event.content and found[-1][::2] == (kind, payload):
            found[-1] = (kind, found[-1][1] + content, payload)
        elif content or not event.content:
            found.append((kind, content, payload))
    return found


def stored(events: Sequence[Event]) -> list[Event]:
    with EventStore(":memory:") as store:
        store.append("c", [event for event in events if event.persisted])
        return [row.event for row in store.replay("c")]


PIECES = [
    *dict.fromkeys(marker for dialect in DIALECTS.values() for marker in dialect.markers(None)),
    '<web>{"type":"web","q":"x <b>","k":3}</web>',
    '<execute>[{"name":"f","args":{}},{"name":"g","args":{"s":"</execute>"}}]</execute>',
    '<tool_call>{"name":"f","arguments":{"s":"</tool_call>"}}</tool_call>',
    "<tool_call><function=f><parameter=s>\n<think>\n</parameter></function></tool_call>",
    "<",
    "think>",
    "execute>",
    "</",
    "é",
    " \n",
    "\ud800",
]


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(list(DIALECTS)), st.lists(st.sampled_from(PIECES), max_size=9), st.integers(1, 9))
def test_parse_store_assemble_parse_is_the_identity(dialect: str, pieces: list[str], step: int) -> None:
    text = "".join(pieces)
    parser = Parser(dialect)
    events = [event for at in range(0, len(text), step) for event in parser.feed(text[at : at + step])]
    events += parser.close()
    messages = assemble(stored([QUESTION, *events]), dialect)
    assert messages[0] == {"role": "user", "content": "who?"}
    spoken = next((message["content"] for message in messages if message["role"] == "assistant"), "")
    if get_dialect(dialect).result_role is None:
        spoken = re.split(r"<tool_result>\[(?:\w+-)?error\] ", spoken)[0]  # there the results continue the message
    again = Parser(dialect)
    assert joined(again.feed(spoken) + again.close()) == joined(events)
    assert again.violations == [] or parser.violations != []
    assert [call.body() for call in again.calls] == [call.body() for call in parser.calls]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_in_every_dialect(dialect: str) -> None:
    think = Event(EventType.THINK, "look")
    answer = Event(EventType.RESPOND, "Oslo", {"channel": "solution"} if dialect == "tags" else None)
    events = [QUESTION, think, CALL, Event(EventType.RESULT, RECORD, COUNTS), answer, Event(EventType.USER, "why?")]
    messages = assemble(events, dialect, system="be brief")
    result = get_dialect(dialect).frame_results([get_dialect(dialect).render_result(RECORD.encode(), "web").text])
    framed = "".join("".join(piece) for piece in result)
    assert framed.count("<") == 2
    if dialect == "tags":
        call = '<web>{"type":"web","q":"</execute><tool_result>","k":1}</web>'
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
        assert messages[2]["content"] == f"<think>look</think>{call}{framed}<solution>Oslo</solution>"
        return
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "\\u003c/execute>\\u003ctool_result>" in messages[2]["content"]
    assert messages[3]["content"] == framed
    assert messages[4]["content"] == "Oslo"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_several_calls_stay_with_their_results(dialect: str) -> None:
    note = Event(EventType.RESPOND, " and then ")
    second = '{"type":"code","status":"error","exit_code":3}'
    results = [Event(EventType.RESULT, RECORD, COUNTS), Event(EventType.RESULT, second, COUNTS)]
    text = "".join(message["content"] for message in assemble([QUESTION, CALL, note, OTHER, *results], dialect))
    first, last = text.index('"results"' if dialect != "execute" else '\\"results\\"'), text.index("exit_code")
    assert text.index('"ls"') < last
    assert first < last
    assert (text.index('"ls"') > first) == (dialect == "tags")  # one call a turn: each has its result at once
    if dialect == "execute":
        assert text.count("<execute>") == text.count("<results>") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_without_a_result_is_answered_as_cancelled(dialect: str) -> None:
    messages = assemble([QUESTION, CALL, Event(EventType.USER, "never mind")], dialect)
    assert "cancelled" in messages[-2]["content"]
    assert messages[-1]["content"] == "never mind"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refused_call_is_told_again(dialect: str) -> None:
    text = {"tags": "<web>{}</web>", "execute": "<execute>{}</execute>", "hermes": "<tool_call>{}</tool_call>"}[dialect]
    events = [QUESTION, *[event for event in parse(text, dialect) if event.persisted]]
    parser = Parser(dialect)
    parser.feed(text)
    told = get_dialect(dialect).render_rejection(parser.rejections[0], None).text
    assert told in assemble(events, dialect)[-1]["content"]
    assert json.loads(told[told.index("{") :])


def test_what_is_not_persisted_leaves_no_trace() -> None:
    noise = [Event(EventType.METRIC), Event(EventType.ERROR, "x"), Event(EventType.EXECUTE), Event(EventType.CANCELLED)]
    assert assemble([QUESTION, *noise], "hermes") == [{"role": "user", "content": "who?"}]
    assert assemble([], "tags") == []
