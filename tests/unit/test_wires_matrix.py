"""One conversation on every wire, from each to each other and back: what no loss names is equal.

Each vendor's history below is written by hand as that vendor has it, with its own extras, and is judged by the vendor's
SDK types before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from vendor_types import check_messages

from callwright.serving.protocol.values import is_synthetic_id
from callwright.serving.wires import (
    Extra,
    Loss,
    LossKind,
    Message,
    MessageRole,
    NameMap,
    Rejection,
    ToolCall,
    ToolResult,
    WireFormat,
    messages_from,
    messages_to,
)

pytestmark = pytest.mark.unit

SYSTEM = "Sei höflich. 礼儀正しく。"
ASK = 'Was ist 2⁶⁴ 🧮? Und lies "<a>"!'
SAY = "Ich rechne — 少々お待ちを."
ARGS = {"expr": "2**64", "exact": 18446744073709551616, "nested": {"π": [3.5, None, True], "tag": "</tool_call>"}}
PATH = {"path": "/tmp/ä b.txt", "limit": 3}
GOOD = "18446744073709551616 ✓"
FAIL = "boom ✗"
END = "Fertig: 18446744073709551616."


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def hermes_call(name: str, arguments: Any) -> str:
    body = text_of({"name": name, "arguments": arguments}).replace("<", "\\u003c")
    return f"<tool_call>\n{body}\n</tool_call>"


def chat_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text_of(arguments)}}


HISTORIES: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": SAY,
                "reasoning_content": "hm",
                "tool_calls": [chat_call("call_A", "calc", ARGS), chat_call("call_B", "files_read", PATH)],
            },
            {"role": "tool", "tool_call_id": "call_A", "content": GOOD},
            {"role": "tool", "tool_call_id": "call_B", "content": text_of({"error": FAIL})},
            {"role": "assistant", "content": END},
        ]
    },
    "responses": {
        "input": [
            {"type": "message", "role": "system", "content": SYSTEM},
            {"type": "message", "role": "user", "content": ASK},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": SAY, "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_A",
                "name": "calc",
                "arguments": text_of(ARGS),
                "status": "completed",
            },
            {"type": "function_call", "call_id": "call_B", "name": "files_read", "arguments": text_of(PATH)},
            {"type": "function_call_output", "call_id": "call_A", "output": GOOD},
            {"type": "function_call_output", "call_id": "call_B", "output": text_of({"error": FAIL})},
            {"type": "message", "role": "assistant", "content": END},
        ]
    },
    "anthropic": {
        "system": SYSTEM,
        "messages": [
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "text", "text": SAY},
                    {"type": "tool_use", "id": "toolu_A", "name": "calc", "input": ARGS},
                    {"type": "redacted_thinking", "data": "b3BhcXVl"},
                    {"type": "tool_use", "id": "toolu_B", "name": "files_read", "input": PATH},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_A", "content": GOOD},
                    {"type": "tool_result", "tool_use_id": "toolu_B", "content": FAIL, "is_error": True},
                ],
            },
            {"role": "assistant", "content": END},
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": SYSTEM}]},
        "contents": [
            {"role": "user", "parts": [{"text": ASK}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": SAY},
                    {"functionCall": {"id": "g.1", "name": "calc", "args": ARGS}, "thoughtSignature": "UzE="},
                    {"functionCall": {"name": "files.read", "args": PATH}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "g.1", "name": "calc", "response": {"output": GOOD}}},
                    {"functionResponse": {"name": "files.read", "response": {"error": FAIL}}},
                ],
            },
            {"role": "model", "parts": [{"text": END}]},
        ],
    },
    "ollama": {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": SAY,
                "thinking": "hm",
                "tool_calls": [
                    {"id": "call_A", "function": {"name": "calc", "arguments": ARGS}},
                    {"function": {"name": "files.read", "arguments": PATH}},
                ],
            },
            {"role": "tool", "tool_name": "calc", "content": GOOD, "tool_call_id": "call_A"},
            {"role": "tool", "tool_name": "files.read", "content": text_of({"error": FAIL})},
            {"role": "assistant", "content": END},
        ]
    },
    "hermes": {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": f"<think>hm</think>{SAY}\n{hermes_call('calc', ARGS)}\n{hermes_call('files.read', PATH)}",
            },
            {"role": "tool", "content": text_of({"name": "calc", "content": GOOD})},
            {"role": "tool", "content": text_of({"name": "files.read", "content": text_of({"error": FAIL})})},
            {"role": "assistant", "content": END},
        ]
    },
}

# What is lost on the way there, and on the way back. A wire to itself loses nothing.
EXTRA, NAME, ID, STATUS, SIGNATURE = "extra", "tool.name", "call.id", "result.status", "call.signature"
EXPECTED: dict[tuple[str, str], tuple[set[str], set[str]]] = {
    ("openai", "openai"): (set(), set()),
    ("openai", "responses"): ({EXTRA}, set()),
    ("openai", "anthropic"): ({EXTRA}, set()),
    ("openai", "gemini"): ({EXTRA, SIGNATURE}, set()),
    ("openai", "ollama"): ({EXTRA}, set()),
    ("openai", "hermes"): ({EXTRA, ID}, set()),
    ("responses", "openai"): ({EXTRA}, set()),
    ("responses", "responses"): (set(), set()),
    ("responses", "anthropic"): ({EXTRA}, set()),
    ("responses", "gemini"): ({EXTRA, SIGNATURE}, set()),
    ("responses", "ollama"): ({EXTRA}, set()),
    ("responses", "hermes"): ({EXTRA, ID}, set()),
    ("anthropic", "openai"): ({EXTRA, STATUS}, set()),
    ("anthropic", "responses"): ({EXTRA, STATUS}, set()),
    ("anthropic", "anthropic"): (set(), set()),
    ("anthropic", "gemini"): ({EXTRA, SIGNATURE}, set()),
    ("anthropic", "ollama"): ({EXTRA, STATUS}, set()),
    ("anthropic", "hermes"): ({EXTRA, ID, STATUS}, set()),
    ("gemini", "openai"): ({EXTRA, NAME, STATUS}, {SIGNATURE}),
    ("gemini", "responses"): ({EXTRA, NAME, STATUS}, {SIGNATURE}),
    ("gemini", "anthropic"): ({EXTRA, NAME, ID}, {SIGNATURE}),
    ("gemini", "gemini"): (set(), set()),
    ("gemini", "ollama"): ({EXTRA, STATUS}, {SIGNATURE}),
    ("gemini", "hermes"): ({EXTRA, ID, STATUS}, {SIGNATURE}),
    ("ollama", "openai"): ({EXTRA, NAME}, set()),
    ("ollama", "responses"): ({EXTRA, NAME}, set()),
    ("ollama", "anthropic"): ({EXTRA, NAME}, set()),
    ("ollama", "gemini"): ({EXTRA, SIGNATURE}, set()),
    ("ollama", "ollama"): (set(), set()),
    ("ollama", "hermes"): ({EXTRA, ID}, set()),
    ("hermes", "openai"): ({EXTRA, NAME}, set()),
    ("hermes", "responses"): ({EXTRA, NAME}, set()),
    ("hermes", "anthropic"): ({EXTRA, NAME}, set()),
    ("hermes", "gemini"): ({EXTRA, SIGNATURE}, set()),
    ("hermes", "ollama"): ({EXTRA}, set()),
    ("hermes", "hermes"): (set(), set()),
}


def kinds(losses: Iterable[Loss]) -> set[str]:
    return {str(loss.kind) for loss in losses}


def comparable(messages: Sequence[Message], lost: set[str]) -> list[Any]:
    """Everything of a conversation that no loss names. Ids that were made here carry nothing but their place."""
    places: dict[str, str] = {}

    def place(call_id: str) -> str:
        anonymous = LossKind.CALL_ID in lost or is_synthetic_id(call_id)
        return places.setdefault(call_id, f"#{len(places)}") if anonymous else call_id

    def parts(message: Message) -> Iterable[Any]:
        for part in message.parts:
            if LossKind.EXTRA in lost:
                if isinstance(part, Extra):
                    continue
                part = replace(part, extra=None) if not isinstance(part, Rejection) else part
            if isinstance(part, ToolCall):
                part = replace(part, id=place(part.id), synthetic_id=LossKind.CALL_ID in lost or part.synthetic_id)
            elif isinstance(part, ToolResult):
                part = replace(part, call_id=place(part.call_id))
                if LossKind.RESULT_STATUS in lost and FAIL in part.content:
                    part = replace(part, status="?", content="?")  # type: ignore[arg-type]
            yield part

    return [(message.role, list(parts(message))) for message in messages]


@pytest.mark.parametrize("fmt", WireFormat)
def test_the_hand_written_histories_are_the_vendors(fmt: str) -> None:
    check_messages(fmt, HISTORIES[fmt])


@pytest.mark.parametrize("fmt", WireFormat)
def test_every_history_says_the_same(fmt: str) -> None:
    system, user, said, results, end = messages_from(fmt, HISTORIES[fmt])
    assert (system.role, system.text) == (MessageRole.SYSTEM, SYSTEM)
    assert (user.role, user.text) == (MessageRole.USER, ASK)
    assert said.text == SAY
    calls = [call for call in said.calls if isinstance(call, ToolCall)]
    assert [(call.name.replace(".", "_"), call.arguments) for call in calls] == [("calc", ARGS), ("files_read", PATH)]
    assert [result.call_id for result in results.results] == [call.id for call in calls]
    assert [result.tool for result in results.results] == [call.name for call in calls]
    assert results.results[0].content == GOOD
    assert FAIL in results.results[1].content
    assert end.text == END
    assert said.extras


@pytest.mark.parametrize(("here", "there"), EXPECTED)
def test_there_and_back(here: WireFormat, there: WireFormat) -> None:
    names = {fmt: NameMap(WireFormat(fmt)) for fmt in {here, there}}
    start = messages_from(here, HISTORIES[here], names=names[here])
    going = messages_to(there, start, names=names[there])
    check_messages(there, going.payload)
    arrived = messages_from(there, going.payload, names=names[there])
    coming = messages_to(here, arrived, names=names[here])
    check_messages(here, coming.payload)
    back = messages_from(here, coming.payload, names=names[here])

    assert (kinds(going.losses), kinds(coming.losses)) == EXPECTED[here, there]
    lost = kinds(going.losses)
    # The map turns names back, so a changed name is reported and yet arrives.
    assert comparable(arrived, lost) == comparable(start, lost)
    lost |= kinds(coming.losses)
    assert comparable(back, lost) == comparable(start, lost)
    if here == there:
        assert coming.payload == HISTORIES[here]


def test_every_pair_is_expected() -> None:
    assert set(EXPECTED) == {(here, there) for here in WireFormat for there in WireFormat}


@pytest.mark.parametrize("fmt", WireFormat)
def test_json_that_travels_is_stable(fmt: str) -> None:
    """Keys keep their order, so that a prompt cache keeps its prefix."""
    payload = messages_to(fmt, messages_from(fmt, HISTORIES[fmt])).payload
    again = messages_to(fmt, messages_from(fmt, json.loads(json.dumps(payload)))).payload
    assert json.dumps(again) == json.dumps(payload)
