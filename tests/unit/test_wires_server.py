"""The vendor's side: what a served checkpoint writes, the vendors' SDKs take, and our client reads back equal."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai import types as genai
from hypothesis import given, settings
from hypothesis import strategies as st
from ollama import ChatResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from callwright.serving.protocol.tools import CODE, WEB
from callwright.serving.protocol.values import ResultStatus
from callwright.serving.wires import (
    CapabilityError,
    ChoiceMode,
    Message,
    MessageRole,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    WireError,
    choice_to,
    messages_to,
    read_reply,
    read_stream,
    tools_to,
)
from callwright.serving.wires.base import WireFormat
from callwright.serving.wires.engine import cache_format, reasoning_format, tool_wire_format
from callwright.serving.wires.fields import merged
from callwright.serving.wires.server import SERVED, Finish, Head, Usage, read_request, write_reply, write_stream

pytestmark = pytest.mark.unit

HEAD = Head("abc", "tiny", 1_790_000_000)
USAGE = Usage(input=11, output=7, reasoning=2, cached=3)
WHOLE: dict[str, Any] = {
    "openai": ChatCompletion,
    "responses": Response,
    "anthropic": AnthropicMessage,
    "gemini": genai.GenerateContentResponse,
    "ollama": ChatResponse,
}
CHUNK: dict[str, TypeAdapter[Any]] = {
    "openai": TypeAdapter(ChatCompletionChunk),
    "responses": TypeAdapter(ResponseStreamEvent),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
    "gemini": TypeAdapter(genai.GenerateContentResponse),
    "ollama": TypeAdapter(ChatResponse),
}
ARGUMENTS = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3)
PIECES = st.lists(st.text(max_size=6) | st.builds(ToolCall, st.sampled_from(["web", "code"]), ARGUMENTS), max_size=6)


def unknown(value: Any) -> list[str]:
    """Fields of a vendor's object that its class does not declare."""
    if isinstance(value, BaseModel):
        inner = [name for name in type(value).model_fields if getattr(value, name, None) is not None]
        return [*(value.model_extra or ()), *(bad for name in inner for bad in unknown(getattr(value, name)))]
    items = value if isinstance(value, list) else ()
    return [bad for item in items for bad in unknown(item)]


def said(message: Message) -> tuple[str, list[tuple[str, Any]]]:
    calls = [call for call in message.calls if isinstance(call, ToolCall)]
    assert len(calls) == len(message.calls)
    return message.text, [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize("fmt", SERVED)
@settings(max_examples=60, deadline=None)
@given(pieces=PIECES, thinking=st.lists(st.text(max_size=4), max_size=2), finish=st.sampled_from(Finish))
def test_a_stream_is_the_vendors_and_is_read_back_equal(
    fmt: WireFormat, pieces: list[Any], thinking: list[str], finish: Finish
) -> None:
    chunks = write_stream(fmt, HEAD, pieces, finish, USAGE, thinking)
    objects = [CHUNK[fmt].validate_python(chunk) for chunk in chunks]
    assert {bad for item in objects for bad in unknown(item)} <= {"reasoning_content"}
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    calls = [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, ToolCall)]
    if finish is Finish.LENGTH:
        return  # the last call of a reply that was cut off may be refused
    for stream in (chunks, objects):
        assert said(read_stream(fmt, stream)) == (text, calls)
    thought = "".join(str(extra.data) for extra in read_stream(fmt, chunks).extras)
    assert all(repr(piece)[1:-1] in thought for piece in thinking)


@pytest.mark.parametrize("fmt", SERVED)
def test_a_whole_reply_is_the_vendors_and_is_read_back_equal(fmt: WireFormat) -> None:
    calls = (ToolCall("web", {"q": "ä", "k": 1}), ToolCall("code", {}))
    message = Message.of(MessageRole.ASSISTANT, "one\ntwo", *calls)
    reply = write_reply(fmt, HEAD, message, Finish.CALLS, USAGE, thinking="hm")
    assert set(unknown(WHOLE[fmt].model_validate(reply))) <= {"reasoning_content"}
    back = read_reply(fmt, reply)
    assert said(back) == said(message)
    assert [call.id for call in back.calls if isinstance(call, ToolCall)] == [call.id for call in calls]
    assert "hm" in str([extra.data for extra in back.extras])
    assert read_reply(fmt, write_reply(fmt, HEAD, message, Finish.LENGTH, USAGE)).truncated


@pytest.mark.parametrize("fmt", SERVED)
def test_a_stream_and_a_whole_reply_agree(fmt: WireFormat) -> None:
    call = ToolCall("web", {"q": "x", "k": 2})
    whole = read_reply(
        fmt, write_reply(fmt, HEAD, Message.of(MessageRole.ASSISTANT, "hi", call), Finish.CALLS, USAGE, "hm")
    )
    stream = read_stream(fmt, write_stream(fmt, HEAD, ["h", "i", call], Finish.CALLS, USAGE, ["h", "m"]))
    assert said(stream) == said(whole)
    assert [type(part) for part in stream.parts] == [type(part) for part in whole.parts]


@pytest.mark.parametrize("fmt", SERVED)
def test_a_request_is_read_into_canonical_values(fmt: WireFormat) -> None:
    call = ToolCall("web", {"q": "x", "k": 2}, "call_1", synthetic_id=False)
    messages = [
        Message.of(MessageRole.SYSTEM, "be brief"),
        Message.of(MessageRole.USER, "ask"),
        Message.of(MessageRole.ASSISTANT, "looking", call),
        Message.of(MessageRole.TOOL, ToolResult("call_1", "web", ResultStatus.SUCCESS, "found")),
        Message.of(MessageRole.USER, "and?"),
    ]
    choice = ToolChoice() if fmt == "ollama" else ToolChoice(ChoiceMode.NAMED, ("web",))
    limit = {
        "openai": {"max_completion_tokens": 64, "temperature": 0, "stop": "END"},
        "responses": {"max_output_tokens": 64, "temperature": 0},
        "anthropic": {"max_tokens": 64, "temperature": 0, "stop_sequences": ["END"]},
        "gemini": {"generationConfig": {"maxOutputTokens": 64, "temperature": 0, "stopSequences": ["END"]}},
        "ollama": {"options": {"num_predict": 64, "temperature": 0, "stop": ["END"]}},
    }[fmt]
    body = merged(
        {"model": "tiny", "stream": True},
        messages_to(fmt, messages).payload,
        tools_to(fmt, [WEB, CODE]).payload,
        choice_to(fmt, choice).payload,
        limit,
    )
    request = read_request(fmt, body)
    assert list(request.messages) == messages
    assert [(tool.name, tool.input_schema) for tool in request.tools] == [(t.name, t.input_schema) for t in (WEB, CODE)]
    assert request.choice == choice
    assert (request.model, request.stream, request.max_tokens, request.temperature) == ("tiny", True, 64, 0)
    assert request.stop == (() if fmt == "responses" else ("END",))


BAD: list[tuple[str, Any]] = [
    ("openai", []),
    ("openai", {"messages": "hi"}),
    ("openai", {"messages": [{"role": "wizard", "content": "x"}]}),
    ("openai", {"messages": [{"role": "tool", "tool_call_id": "nobody", "content": "x"}]}),
    ("openai", {"messages": [{"role": "user", "content": 7}]}),
    ("openai", {"messages": [], "max_tokens": "many"}),
    ("openai", {"messages": [], "temperature": True}),
    ("responses", {"input": [{"type": "function_call_output", "call_id": "nobody", "output": "x"}]}),
    ("responses", {"input": 7}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}),
    ("anthropic", {"messages": [7]}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}),
    ("gemini", {"contents": [{"role": "wizard", "parts": []}]}),
    ("ollama", {"messages": [{"role": "tool", "content": "x"}]}),
    ("hermes", {"messages": [{"role": "tool", "content": "x"}]}),
]


@pytest.mark.parametrize(("fmt", "body"), BAD)
def test_what_is_not_of_the_wire_is_one_kind_of_error(fmt: str, body: Any) -> None:
    with pytest.raises(WireError):
        read_request(fmt, body)


KEYS = [
    "messages",
    "input",
    "contents",
    "role",
    "content",
    "parts",
    "type",
    "tool_calls",
    "function",
    "text",
    "functionCall",
    "functionResponse",
    "choices",
    "message",
    "output",
    "candidates",
    "tools",
    "tool_choice",
    "item",
    "delta",
    "index",
    "arguments",
    "args",
    "input_schema",
    "content_block",
    "system",
]
WORDS = [
    "user",
    "assistant",
    "model",
    "tool",
    "system",
    "function_call",
    "function_call_output",
    "tool_use",
    "tool_result",
    "text",
    "message",
    "auto",
    "content_block_start",
    "content_block_delta",
    "input_json_delta",
    "response.output_item.added",
    "response.completed",
    "response.output_text.delta",
    "response.function_call_arguments.delta",
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("fmt", WireFormat)
@settings(max_examples=200, deadline=None)
@given(data=JUNK)
def test_no_data_raises_anything_else(fmt: WireFormat, data: Any) -> None:
    for read in (read_request, read_reply, lambda fmt, data: read_stream(fmt, [data])):
        try:
            read(fmt, data)
        except WireError:
            continue


def test_nothing_is_served_as_text() -> None:
    with pytest.raises(CapabilityError):
        write_reply("hermes", HEAD, Message(MessageRole.ASSISTANT, (Text("x"),)), Finish.STOP, USAGE)


def test_an_engine_declares_its_formats_by_class_or_by_instance() -> None:
    class Remote:
        tool_wire_format = WireFormat.ANTHROPIC
        reasoning_format = "anthropic"

    engine = Remote()
    assert tool_wire_format(engine) is WireFormat.ANTHROPIC
    assert (reasoning_format(engine), cache_format(engine)) == ("anthropic", "none")
    engine.tool_wire_format = WireFormat.OLLAMA
    assert tool_wire_format(engine) is WireFormat.OLLAMA
    with pytest.raises(WireError, match="declares no tool_wire_format"):
        tool_wire_format(object())


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fmt", "fields", "schema"),
    [
        ("openai", {}, None),
        ("openai", {"response_format": {"type": "text"}}, None),
        ("openai", {"response_format": {"type": "json_object"}}, {"type": "object"}),
        (
            "openai",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            SCHEMA,
        ),
        ("responses", {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}, SCHEMA),
        ("responses", {"text": {"verbosity": "low"}}, None),
        ("anthropic", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, SCHEMA),
        (
            "gemini",
            {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
            SCHEMA,
        ),
        (
            "gemini",
            {
                "generationConfig": {
                    "response_mime_type": "application/json",
                    "response_schema": {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}}},
                }
            },
            SCHEMA,
        ),
        ("gemini", {"generationConfig": {"responseMimeType": "application/json"}}, {}),
        ("ollama", {"format": "json"}, {"type": "object"}),
        ("ollama", {"format": SCHEMA}, SCHEMA),
        ("ollama", {"format": ""}, None),
    ],
)
def test_the_schema_of_an_answer_is_read(fmt: str, fields: Any, schema: Any) -> None:
    history = {"responses": {"input": "x"}, "gemini": {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}}
    body = {**history.get(fmt, {"messages": [{"role": "user", "content": "x"}]}), **fields}
    assert read_request(fmt, body).answer == schema


@pytest.mark.parametrize(
    ("fmt", "fields"),
    [
        ("openai", {"messages": [], "response_format": {"type": "grammar"}}),
        ("openai", {"messages": [], "response_format": {"type": "json_schema"}}),
        ("gemini", {"contents": [], "generationConfig": {"responseMimeType": "text/x.enum"}}),
        ("gemini", {"contents": [], "generationConfig": {"responseSchema": {"type": "OBJECT"}}}),
        ("ollama", {"messages": [], "format": "xml"}),
    ],
)
def test_an_answer_of_another_format_is_an_error(fmt: str, fields: Any) -> None:
    with pytest.raises(WireError):
        read_request(fmt, fields)


@pytest.mark.parametrize(
    ("mode", "strict"), [("VALIDATED", True), ("validated", True), ("ANY", False), ("AUTO", False)]
)
def test_geminis_validated_mode_makes_its_tools_strict(mode: str, strict: bool) -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "tools": tools_to("gemini", [WEB, CODE]).payload["tools"],
        "toolConfig": {"functionCallingConfig": {"mode": mode}},
    }
    assert [tool.strict for tool in read_request("gemini", body).tools] == [strict, strict]
