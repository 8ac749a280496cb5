"""Damaged data: one value of a good request, reply or stream replaced by another; it is read or refused."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_wires_matrix import HISTORIES

from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.values import Rejection, ToolCall
from callwright.serving.wires import (
    Message,
    MessageRole,
    WireError,
    WireFormat,
    messages_to,
    read_reply,
    read_stream,
    tools_to,
)
from callwright.serving.wires.server import SERVED, Finish, Head, Usage, read_request, write_reply, write_stream

pytestmark = pytest.mark.unit

JUNK: list[Any] = [None, True, 0, -1, 2.5, float("nan"), "", "x", "\ud800", [], [None], {}, {"type": "x"}, [[]]]
CALLS = [ToolCall("web", {"q": "x", "k": 2}), ToolCall("code", {"code_command": "ls"})]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def damaged(value: Any, dice: random.Random) -> Any:
    """A copy with one value replaced, or one key or item gone."""
    value = copy.deepcopy(value)
    path = dice.choice(list(places(value)))
    if not path:
        return dice.choice(JUNK)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if dice.random() < 0.3:
        del holder[path[-1]]
    else:
        holder[path[-1]] = dice.choice(JUNK)
    return value


def judge(read: Callable[[], Any]) -> None:
    try:
        message = read()
    except WireError:
        return
    for call in message.calls if isinstance(message, Message) else ():
        assert isinstance(call, ToolCall | Rejection)
        if isinstance(call, ToolCall):
            assert isinstance(call.name, str)
            assert call.name
            assert isinstance(call.arguments, dict)


@pytest.mark.parametrize("fmt", WireFormat)
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_requests(fmt: WireFormat, seed: int) -> None:
    choices: list[Any] = ["auto", {"type": "function", "function": {"name": "web"}}, {"type": "tool", "name": "web"}]
    choices.append({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [choices[1]]}})
    sampling = {"temperature": 1, "top_p": 0.5, "stop": ["x"], "max_tokens": 7, "num_predict": 7}
    body = {"model": "m", "stream": True, **HISTORIES[fmt], **tools_to(fmt, DEFAULT_TOOLS).payload, **sampling}
    body |= {"tool_choice": choices[seed % 4], "options": sampling, "generationConfig": sampling}
    judge(lambda: read_request(fmt, damaged(body, random.Random(seed))))


@pytest.mark.parametrize("fmt", SERVED)
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_replies_and_streams(fmt: WireFormat, seed: int) -> None:
    dice = random.Random(seed)
    head, usage = Head("a", "m", 1), Usage()
    reply = write_reply(fmt, head, Message.of(MessageRole.ASSISTANT, "hi", *CALLS), Finish.CALLS, usage, "hm")
    judge(lambda: read_reply(fmt, damaged(reply, dice)))
    chunks = write_stream(fmt, head, ["h", "i", *CALLS], Finish.CALLS, usage, ["hm"])
    number = dice.randrange(len(chunks))
    chunks[number] = damaged(chunks[number], dice)
    judge(lambda: read_stream(fmt, chunks))


@pytest.mark.parametrize("fmt", SERVED)
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_chunks_lost_repeated_or_out_of_order(fmt: WireFormat, seed: int) -> None:
    """Such a stream may lose calls or change them; what it gives are still calls or refusals."""
    dice = random.Random(seed)
    chunks = write_stream(fmt, Head("a", "m", 1), ["h", *CALLS], Finish.CALLS, Usage(), ["hm"])
    judge(lambda: read_stream(fmt, [dice.choice(chunks) for _ in range(len(chunks))]))


@pytest.mark.parametrize("fmt", WireFormat)
def test_what_was_read_can_be_written(fmt: WireFormat) -> None:
    """A conversation with calls that wait for their results, and with refused ones, goes on every wire."""
    reply = {"choices": [{"message": {"content": "hi", "tool_calls": [{"function": {}}, {"id": 7, "function": None}]}}]}
    message = read_reply("openai", reply)
    assert all(isinstance(call, Rejection) for call in message.calls)
    assert messages_to(fmt, [message]).payload
    assert messages_to(fmt, [message, Message.of(MessageRole.TOOL)]).payload
