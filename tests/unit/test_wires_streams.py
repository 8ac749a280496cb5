"""Streams: however a vendor cuts a reply into chunks, the same message comes out; a call left open is never run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
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
from pydantic import TypeAdapter

from callwright.serving.protocol.values import RejectionCode
from callwright.serving.wires import Rejection, ToolCall, WireFormat, read_reply, read_stream

pytestmark = pytest.mark.unit

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), JSON, max_size=4)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "g", "files_read"]), ARGUMENTS), max_size=4)
TEXT = st.text(st.characters(blacklist_characters="<\n", blacklist_categories=("Cs",)), max_size=20)
SEEDS = st.integers(0, 1 << 30)
RESPONSES_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ANTHROPIC_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
Spoken = list[tuple[str, dict[str, Any]]]


def cut(text: str, dice: random.Random) -> list[str]:
    """A random cut of a text into pieces, empty ones among them."""
    places = sorted(dice.randint(0, len(text)) for _ in range(dice.randint(0, 4)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def openai_chunks(text: str, calls: Spoken, dice: random.Random) -> Iterable[Any]:
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, *({"content": piece} for piece in cut(text, dice))]
    for index, (name, arguments) in enumerate(calls):
        head = {"index": index, "id": f"c{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        for piece in cut(json.dumps(arguments), dice):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    finish = "tool_calls" if calls else "stop"
    choices = [*({"index": 0, "delta": delta} for delta in deltas), {"index": 0, "delta": {}, "finish_reason": finish}]
    head = {"id": "x", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    return [ChatCompletionChunk.model_validate({**head, "choices": [choice]}) for choice in choices]


def responses_events(text: str, calls: Spoken, dice: random.Random) -> Iterable[Any]:
    number = iter(range(10_000))
    events: list[dict[str, Any]] = []

    def emit(kind: str, **fields: Any) -> None:
        events.append({"type": f"response.{kind}", "sequence_number": next(number), **fields})

    message = {"type": "message", "id": "m", "role": "assistant"}
    emit("output_item.added", output_index=0, item={**message, "status": "in_progress", "content": []})
    for piece in cut(text, dice):
        emit("output_text.delta", output_index=0, item_id="m", content_index=0, delta=piece, logprobs=[])
    content = [{"type": "output_text", "text": text, "annotations": []}]
    emit("output_item.done", output_index=0, item={**message, "status": "completed", "content": content})
    for index, (name, arguments) in enumerate(calls, 1):
        item = {"type": "function_call", "id": f"fc{index}", "call_id": f"c{index}", "name": name}
        whole = json.dumps(arguments)
        emit("output_item.added", output_index=index, item={**item, "arguments": "", "status": "in_progress"})
        for piece in cut(whole, dice):
            emit("function_call_arguments.delta", output_index=index, item_id=item["id"], delta=piece)
        emit("function_call_arguments.done", output_index=index, item_id=item["id"], arguments=whole)
        emit("output_item.done", output_index=index, item={**item, "arguments": whole, "status": "completed"})
    return [
        *map(RESPONSES_EVENT.validate_python, events),
        {"type": "response.completed", "response": {"status": "completed"}},
    ]


def anthropic_events(text: str, calls: Spoken, dice: random.Random) -> Iterable[Any]:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if text:
        deltas = [{"type": "text_delta", "text": piece} for piece in cut(text, dice)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for index, (name, arguments) in enumerate(calls):
        pieces = cut(json.dumps(arguments), dice) if arguments else []
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        blocks.append(({"type": "tool_use", "id": f"t{index}", "name": name, "input": {}}, deltas))
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if calls else "end_turn"}
    events += [{"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}, {"type": "message_stop"}]
    return [ANTHROPIC_EVENT.validate_python(event) for event in events]


def gemini_chunks(text: str, calls: Spoken, dice: random.Random) -> Iterable[Any]:
    parts: list[dict[str, Any]] = [{"text": piece} for piece in cut(text, dice)]
    parts += [
        {"functionCall": {"id": f"g{i}", "name": name, "args": arguments}} for i, (name, arguments) in enumerate(calls)
    ]
    groups: list[list[dict[str, Any]]] = [[]]
    for part in parts:
        groups[-1].append(part)
        if dice.random() < 0.5:
            groups.append([])
    chunks = [{"candidates": [{"content": {"role": "model", "parts": group}}]} for group in groups]
    chunks.append({"candidates": [{"finishReason": "STOP"}]})
    return [genai.GenerateContentResponse.model_validate(chunk) for chunk in chunks]


def ollama_chunks(text: str, calls: Spoken, dice: random.Random) -> Iterable[Any]:
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": piece} for piece in cut(text, dice)]
    for name, arguments in calls:
        call = {"function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    messages.append({"role": "assistant", "content": ""})
    last = {"done": True, "done_reason": "stop"}
    return [ChatResponse.model_validate({"message": message, "done": False}) for message in messages[:-1]] + [
        ChatResponse.model_validate({"message": messages[-1], **last})
    ]


def hermes_pieces(text: str, calls: Spoken, dice: random.Random) -> Iterable[Any]:
    bodies = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    blocks = [f"\n<tool_call>\n{body}\n</tool_call>" for body in bodies]
    return cut("".join([text, *blocks]), dice)


STREAMS = {
    "openai": openai_chunks,
    "responses": responses_events,
    "anthropic": anthropic_events,
    "gemini": gemini_chunks,
    "ollama": ollama_chunks,
    "hermes": hermes_pieces,
}


@pytest.mark.parametrize("fmt", WireFormat)
@settings(max_examples=120, deadline=None)
@given(text=TEXT, calls=CALLS, seed=SEEDS)
def test_any_cut_of_a_stream_gives_the_same(fmt: WireFormat, text: str, calls: Spoken, seed: int) -> None:
    message = read_stream(fmt, STREAMS[fmt](text, calls, random.Random(seed)))
    if text.strip() or fmt != "hermes":  # between blocks of text, blanks alone are no answer
        assert message.text == text
    assert all(isinstance(call, ToolCall) for call in message.calls)
    assert [(call.name, call.arguments) for call in message.calls if isinstance(call, ToolCall)] == calls
    ids = [call.id for call in message.calls if isinstance(call, ToolCall)]
    assert len(set(ids)) == len(ids)
    assert not message.truncated


@pytest.mark.parametrize("fmt", ["openai", "responses", "anthropic"])
@settings(max_examples=80, deadline=None)
@given(calls=CALLS.filter(bool), seed=SEEDS)
def test_a_stream_that_breaks_off_never_gives_a_call_that_was_not_whole(fmt: str, calls: Spoken, seed: int) -> None:
    chunks = list(STREAMS[fmt]("hi", calls, random.Random(seed)))
    for end in range(len(chunks)):
        found = ToolCall.extract_stream(fmt, chunks[:end])
        whole = [(call.name, call.arguments) for call in found if isinstance(call, ToolCall)]
        assert whole == calls[: len(whole)]
        assert all(isinstance(call, ToolCall) for call in found[:-1])


def fragments(*deltas: dict[str, Any], finish: str = "tool_calls") -> list[Any]:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]


def piece(arguments: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"arguments": arguments, **({"name": name} if name else {})}}


TWO = [("f", {"a": 1}), ("g", {"b": 2})]


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        # no index at all
        ([piece('{"a"', "f", id="1"), piece(":1}"), piece('{"b"', "g", id="2"), piece(":2}")], TWO),
        # id and name repeated in every fragment
        ([piece('{"a"', "f", id="1", index=0), piece(":1}", "f", id="1", index=0)], TWO[:1]),
        # one index for all calls
        ([piece('{"a":1}', "f", id="1", index=0), piece('{"b"', "g", id="2", index=0), piece(":2}", index=0)], TWO),
        # one index, and no ids
        ([piece('{"a":1}', "f", index=0), piece('{"b":2}', "g", index=0)], TWO),
        # the index starts at 1
        ([piece('{"a":1}', "f", id="1", index=1), piece('{"b":2}', "g", id="2", index=2)], TWO),
        # interleaved
        (
            [
                *(piece("", "f", id="1", index=0), piece("", "g", id="2", index=1)),
                *(piece('{"a"', index=0), piece('{"b"', index=1), piece(":1}", index=0), piece(":2}", index=1)),
            ],
            TWO,
        ),
        # the same call twice without ids is two calls
        ([piece('{"a":1}', "f", index=0), piece('{"a":1}', "f", index=1)], [TWO[0], TWO[0]]),
        # the id comes after the name
        ([piece("", "f", index=0), piece('{"a":1}', index=0, id="1")], TWO[:1]),
        # neither index nor id, the name repeated
        ([piece('{"a"', "f"), piece(":1}", "f")], TWO[:1]),
    ],
)
def test_what_proxies_do_to_fragments(deltas: list[dict[str, Any]], calls: list[Any]) -> None:
    found = ToolCall.extract_stream("openai", fragments(*deltas))
    assert [(call.name, call.arguments) for call in found if isinstance(call, ToolCall)] == calls
    assert len(found) == len(calls)


def test_a_call_that_the_limit_cut_is_not_run() -> None:
    for stream in (
        fragments(piece("", "f", id="1", index=0), finish="length"),
        fragments(piece('{"a":', "f", id="1", index=0), finish="length"),
        fragments(piece("", "f", id="1", index=0))[:-1],
    ):
        (verdict,) = ToolCall.extract_stream("openai", stream)
        assert isinstance(verdict, Rejection)
        assert verdict.code is RejectionCode.TRUNCATED
    (call,) = ToolCall.extract_stream("openai", fragments(piece('{"a":1}', "f", id="1", index=0), finish="length"))
    assert isinstance(call, ToolCall)


def test_a_whole_reply_that_the_limit_cut_is_judged_the_same() -> None:
    cut_off: dict[str, Any] = {
        "anthropic": {
            "stop_reason": "max_tokens",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
        },
        "gemini": {
            "candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"functionCall": {"name": "f"}}]}}]
        },
        "ollama": {"done_reason": "length", "message": {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}},
        "hermes": '<tool_call>\n{"name": "f", "arguments": {}}',
        "responses": {
            "status": "incomplete",
            "output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "status": "incomplete"}],
        },
    }
    for fmt, reply in cut_off.items():
        (verdict,) = ToolCall.extract(fmt, reply)
        assert isinstance(verdict, Rejection), fmt
        assert verdict.code is RejectionCode.TRUNCATED


def test_gemini_arguments_in_pieces_are_refused_and_not_read_as_none() -> None:
    part = {"functionCall": {"name": "f", "willContinue": True}}
    (verdict,) = ToolCall.extract("gemini", {"candidates": [{"content": {"parts": [part]}}]})
    assert isinstance(verdict, Rejection)


def test_signatures_and_thinking_survive_a_stream() -> None:
    events = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_stop", "index": 0},
    ]
    (extra,) = read_stream("anthropic", events).extras
    assert extra.data == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    parts = [[{"text": "a"}], [{"text": "b", "thoughtSignature": "UzE="}], [{"text": "c"}]]
    chunks = [{"candidates": [{"content": {"parts": part}}]} for part in parts]
    message = read_stream("gemini", chunks)
    assert message.text == "abc"
    assert message.parts[0].extra.data == {"thoughtSignature": "UzE="}  # type: ignore[union-attr]


def test_the_vendors_own_objects_are_read() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":null}'}}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call]}}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
    replies: dict[str, Any] = {
        "openai": ChatCompletion.model_validate({**head, "choices": [choice]}),
        "responses": Response.model_construct(
            status="completed",
            output=[{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":null}'}],
        ),
        "anthropic": AnthropicMessage.model_validate(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": None}}],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        ),
        "gemini": genai.GenerateContentResponse.model_validate(
            {"candidates": [{"content": {"parts": [{"functionCall": {"id": "c", "name": "f", "args": {"a": None}}}]}}]}
        ),
        "ollama": ChatResponse.model_validate(
            {"message": {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": None}}}]}}
        ),
    }
    for fmt, reply in replies.items():
        (found,) = read_reply(fmt, reply).calls
        assert isinstance(found, ToolCall), fmt
        assert (found.name, found.arguments) == ("f", {"a": None})
        assert found.synthetic_id is (fmt == "ollama")


def test_ids_are_unique_within_a_turn_whatever_the_vendor_sends() -> None:
    calls = [{"id": call_id, "function": {"name": "f", "arguments": "{}"}} for call_id in ("same", "same", "", None)]
    found = ToolCall.extract("openai", {"choices": [{"message": {"tool_calls": calls}}]})
    ids = {call.id: call.synthetic_id for call in found if isinstance(call, ToolCall)}
    assert len(ids) == 4
    assert [synthetic for call_id, synthetic in ids.items() if call_id != "same"] == [True, True, True]
    assert ids["same"] is False
