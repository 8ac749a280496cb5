"""Small inputs that break readers of tool calls in public systems; each test gives the value that is right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callwright.serving.protocol.values import RejectionCode, ResultStatus
from callwright.serving.wires import (
    CapabilityError,
    LossKind,
    Message,
    MessageRole,
    Rejection,
    Tool,
    ToolCall,
    ToolResult,
    echo,
    envelope,
    messages_from,
    messages_to,
    read_reply,
)

pytestmark = pytest.mark.unit

OK, BAD = ResultStatus.SUCCESS, ResultStatus.FAILURE


def openai_reply(*calls: dict[str, Any], finish: str = "tool_calls") -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return {"choices": [{"index": 0, "finish_reason": finish, "message": message}]}


def openai_call(arguments: Any, name: str = "clean", call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def responses_call(arguments: Any) -> dict[str, Any]:
    item = {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "clean", "arguments": arguments}
    return {"status": "completed", "output": [{**item, "status": "completed"}]}


def anthropic_stream(*fragments: str, start: dict[str, Any] | None = None, stop: str | None = None) -> list[Any]:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": start or {}}
    events: list[Any] = [{"type": "content_block_start", "index": 0, "content_block": block}]
    for piece in fragments:
        delta = {"type": "input_json_delta", "partial_json": piece}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events.append({"type": "content_block_stop", "index": 0})
    return events + ([{"type": "message_delta", "delta": {"stop_reason": stop}}] if stop else [])


def only(calls: list[ToolCall | Rejection]) -> ToolCall:
    (call,) = calls
    assert isinstance(call, ToolCall)
    return call


def refused(calls: list[ToolCall | Rejection]) -> Rejection:
    (call,) = calls
    assert isinstance(call, Rejection)
    return call


# A call without parameters keeps its {}


def test_no_arguments_are_an_empty_object_on_every_wire() -> None:
    delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "now", "arguments": ""}}]}
    chunks = [{"choices": [{"index": 0, "delta": delta}]}, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}]
    assert only(ToolCall.extract_stream("openai", chunks)).arguments == {}
    assert only(ToolCall.extract_stream("anthropic", anthropic_stream(stop="tool_use"))).arguments == {}
    assert only(ToolCall.extract_stream("anthropic", anthropic_stream())).arguments == {}
    gemini = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "now"}}]}}]}
    assert only(ToolCall.extract("gemini", gemini)).arguments == {}
    assert only(ToolCall.extract("responses", responses_call(""))).arguments == {}
    ollama = {"message": {"tool_calls": [{"function": {"name": "now", "arguments": {}}}]}, "done": True}
    assert only(ToolCall.extract("ollama", ollama)).arguments == {}
    hermes = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert only(ToolCall.extract("hermes", hermes)).arguments == {}


def test_they_go_out_as_the_text_of_an_empty_object_or_as_one() -> None:
    call = ToolCall("now", {}, "c1", synthetic_id=False)
    assert call.to("openai").payload["function"]["arguments"] == "{}"
    assert call.to("responses").payload["arguments"] == "{}"
    assert call.to("anthropic").payload["input"] == {}
    assert call.to("gemini").payload["functionCall"]["args"] == {}
    assert call.to("ollama").payload["function"]["arguments"] == {}
    assert '"arguments":{}' in call.to("hermes").payload


# Malformed arguments are never {} and never run


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ('{"dir": "/tmp/wor', RejectionCode.MALFORMED_JSON),
        ("[1,2]", RejectionCode.NOT_AN_OBJECT),
        ("null", RejectionCode.NOT_AN_OBJECT),
        ("7", RejectionCode.NOT_AN_OBJECT),
        ('{"a":1,"a":2}', RejectionCode.DUPLICATE_KEY),
        ('{"a":NaN}', RejectionCode.NON_FINITE_NUMBER),
        ('{"a":"\\ud800"}', RejectionCode.LONE_SURROGATE),
        ('{"a":1}{"b":2}', RejectionCode.MALFORMED_JSON),
    ],
)
def test_malformed_arguments_are_refused_and_siblings_are_not(arguments: str, code: RejectionCode) -> None:
    reply = openai_reply(openai_call(arguments), openai_call('{"ok":true}', "other", "c2"))
    bad, good = ToolCall.extract("openai", reply)
    assert isinstance(bad, Rejection)
    assert (bad.code, bad.tool, bad.raw, bad.call_id) == (code, "clean", arguments, "c1")
    assert isinstance(good, ToolCall)
    assert (good.name, good.arguments) == ("other", {"ok": True})
    assert refused(ToolCall.extract("responses", responses_call(arguments))).code is code


def test_an_anthropic_block_that_stops_inside_its_input_is_refused() -> None:
    verdict = refused(ToolCall.extract_stream("anthropic", anthropic_stream('{"dir":', stop="tool_use")))
    assert (verdict.code, verdict.raw, verdict.call_id) == (RejectionCode.MALFORMED_JSON, '{"dir":', "t")
    verdict = refused(ToolCall.extract_stream("anthropic", anthropic_stream('{"dir":', stop="max_tokens")))
    assert verdict.code is RejectionCode.TRUNCATED


def test_the_text_that_is_kept_is_bounded() -> None:
    verdict = refused(ToolCall.extract("openai", openai_reply(openai_call('{"a":"' + "x" * 100_000))))
    assert len(verdict.raw) == 2048


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": "\ud800"}, {"a": object()}, [1], "x", 7, True])
def test_decoded_arguments_are_held_to_the_same_rules(value: Any) -> None:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": value}
    assert isinstance(refused(ToolCall.extract("anthropic", {"content": [block]})), Rejection)
    part = {"functionCall": {"name": "f", "args": value}}
    assert isinstance(refused(ToolCall.extract("gemini", {"candidates": [{"content": {"parts": [part]}}]})), Rejection)
    message = {"message": {"tool_calls": [{"function": {"name": "f", "arguments": value}}]}}
    assert isinstance(refused(ToolCall.extract("ollama", message)), Rejection)


def test_the_conversation_goes_on_with_the_cause_and_the_schema() -> None:
    tool = Tool("clean", "Empty a folder.", {"type": "object", "properties": {"dir": {"type": "string"}}})
    calls = ToolCall.extract("openai", openai_reply(openai_call('{"dir": "/tmp/wor')), tools=[tool])
    (message,) = envelope("openai", calls, [], tools=[tool]).payload
    assert (message["role"], message["tool_call_id"]) == ("tool", "c1")
    error = json.loads(json.loads(message["content"])["error"])
    assert error["code"] == "malformed_json"
    assert error["schema"]["properties"]["dir"] == {"type": "string"}
    (said,) = echo("openai", "", calls).payload
    assert said["tool_calls"][0]["function"]["arguments"] == '{"dir": "/tmp/wor'
    translation = echo("anthropic", "", calls)
    assert translation.payload[0]["content"][0]["input"] == {"INVALID_JSON": '{"dir": "/tmp/wor'}
    assert {loss.kind for loss in translation.losses} == {LossKind.CALL_ARGUMENTS, LossKind.CALL_REFUSED}


def test_arguments_are_checked_where_the_tools_are_known() -> None:
    tool = Tool("f", "", {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False})
    for arguments, code in (('{"n":"1"}', RejectionCode.WRONG_TYPE), ('{"m":1}', RejectionCode.EXTRA_KEY)):
        verdict = refused(ToolCall.extract("openai", openai_reply(openai_call(arguments, "f")), tools=[tool]))
        assert verdict.code is code
    verdict = refused(ToolCall.extract("openai", openai_reply(openai_call("{}", "g")), tools=[tool]))
    assert verdict.code is RejectionCode.UNKNOWN_TOOL


def test_doubly_encoded_arguments_are_read_once_more_and_said_so() -> None:
    call = only(ToolCall.extract("openai", openai_reply(openai_call(json.dumps('{"a":1}')))))
    assert call.arguments == {"a": 1}
    assert call.notes
    thrice = json.dumps(json.dumps('{"a":1}'))
    assert refused(ToolCall.extract("openai", openai_reply(openai_call(thrice)))).code is RejectionCode.NOT_AN_OBJECT


def test_geminis_own_word_for_a_malformed_call_is_a_refusal() -> None:
    end = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: f(dir="}
    for found in (
        ToolCall.extract("gemini", {"candidates": [end]}),
        ToolCall.extract_stream("gemini", [{"candidates": [{"content": {"parts": []}}]}, {"candidates": [end]}]),
    ):
        assert refused(found).raw == end["finishMessage"]


def test_a_single_call_of_the_older_kind_is_read() -> None:
    message = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}
    call = only(ToolCall.extract("openai", {"choices": [{"message": message, "finish_reason": "function_call"}]}))
    assert (call.name, call.arguments, call.synthetic_id) == ("f", {"a": 1}, True)


# The placeholder {} of a streamed input is not a fragment


def test_the_placeholder_is_never_part_of_the_input() -> None:
    stream = anthropic_stream("", '{"a"', ": 1}", stop="tool_use")
    call = only(ToolCall.extract_stream("anthropic", stream))
    assert call.arguments == {"a": 1}
    assert json.loads(call.to("openai").payload["function"]["arguments"]) == {"a": 1}


def test_a_filled_start_without_fragments_is_the_input() -> None:
    assert only(ToolCall.extract_stream("anthropic", anthropic_stream(start={"a": 1}))).arguments == {"a": 1}


# Gemini wants all answers in one turn, in the order of the calls


def test_one_content_with_one_response_a_call() -> None:
    parts = [
        {"functionCall": {"id": "g1", "name": "f", "args": {}}},
        {"functionCall": {"id": "g2", "name": "f", "args": {}}},
        {"functionCall": {"name": "g", "args": {}}},
    ]
    calls = ToolCall.extract("gemini", {"candidates": [{"content": {"role": "model", "parts": parts}}]})
    one, two, three = (call for call in calls if isinstance(call, ToolCall))
    assert (one.id, two.id, three.synthetic_id) == ("g1", "g2", True)
    results = [
        ToolResult(three.id, "g", OK, "3"),
        ToolResult("g2", "f", BAD, "boom"),
        ToolResult("g1", "f", OK, "1"),
    ]
    assert envelope("gemini", calls, results).payload == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "g1", "name": "f", "response": {"output": "1"}}},
                {"functionResponse": {"id": "g2", "name": "f", "response": {"error": "boom"}}},
                {"functionResponse": {"name": "g", "response": {"output": "3"}}},
            ],
        }
    ]


# Anthropic wants all results in one message, results first


def test_results_then_text_in_one_message() -> None:
    calls = [ToolCall("f", {}, "t1", synthetic_id=False), ToolCall("f", {}, "t2", synthetic_id=False)]
    results = [ToolResult("t2", "f", OK, "fine"), ToolResult("t1", "f", BAD, "boom")]
    expected = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "boom", "is_error": True},
            {"type": "tool_result", "tool_use_id": "t2", "content": "fine"},
            {"type": "text", "text": "also, hurry"},
        ],
    }
    assert envelope("anthropic", calls, results, text="also, hurry").payload == [expected]
    history = [
        Message.of(MessageRole.ASSISTANT, *calls),
        Message.of(MessageRole.TOOL, results[0]),
        Message.of(MessageRole.TOOL, results[1]),
        Message.of(MessageRole.USER, "also, hurry"),
    ]
    assistant, user = messages_to("anthropic", history).payload["messages"]
    assert [block["id"] for block in assistant["content"]] == ["t1", "t2"]
    assert user == expected


# A thought signature is neither lost nor invented

SIGNED = [
    {"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "UzE="},
    {"functionCall": {"name": "b", "args": {}}},
]


def test_a_signature_goes_back_to_its_part_alone() -> None:
    message = read_reply("gemini", {"candidates": [{"content": {"role": "model", "parts": SIGNED}}]})
    (content,) = echo("gemini", message.text, message.calls, message.extras).payload
    assert content == {"role": "model", "parts": SIGNED}
    assert not messages_to("gemini", [message]).losses


def test_a_call_of_another_vendor_gets_a_note_and_no_signature() -> None:
    calls = [ToolCall("a", {}), ToolCall("b", {})]
    translation = echo("gemini", "", calls)
    assert not any("thoughtSignature" in part for part in translation.payload[0]["parts"])
    assert {loss.kind for loss in translation.losses} == {LossKind.CALL_SIGNATURE}
    first, second = echo("gemini", "", calls, signature_bypass=True).payload[0]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator"
    assert "thoughtSignature" not in second


def test_a_signature_that_crosses_vendors_is_dropped_with_a_note() -> None:
    message = read_reply("gemini", {"candidates": [{"content": {"role": "model", "parts": SIGNED}}]})
    for fmt in ("openai", "responses", "anthropic", "ollama", "hermes"):
        translation = messages_to(fmt, [message])
        assert LossKind.EXTRA in {loss.kind for loss in translation.losses}
        assert "UzE=" not in json.dumps(translation.payload)


# The Responses API treats a missing strict as true

FIND = Tool(
    "find",
    "Find.",
    {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]},
)


def test_strict_is_always_said_to_responses_and_only_when_true_to_chat() -> None:
    flat = FIND.to("responses").payload
    assert flat["strict"] is False
    assert flat["parameters"] == FIND.input_schema
    assert "strict" not in FIND.to("openai").payload["function"]


def test_strict_takes_a_schema_that_is_strict_or_says_what_is_missing() -> None:
    loose = Tool(FIND.name, FIND.description, FIND.input_schema, strict=True)
    closed = {**FIND.input_schema, "additionalProperties": False}
    for fmt in ("openai", "responses"):
        with pytest.raises(CapabilityError, match="additionalProperties"):
            loose.to(fmt)
        with pytest.raises(CapabilityError, match="required, also n"):
            Tool("find", "", closed, strict=True).to(fmt)
    exact = Tool("find", "", {**closed, "required": ["q", "n"]}, strict=True)
    assert exact.to("responses").payload["strict"] is True
    assert exact.to("openai").payload["function"]["strict"] is True


# Schema words that Gemini refuses in one field and takes in the other


def test_the_schema_goes_untouched_into_the_field_for_plain_json_schema() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}}},
        "properties": {"ps": {"type": "array", "items": {"$ref": "#/$defs/P"}}, "self": {"$ref": "#"}},
    }
    payload = Tool("draw", "Draw.", schema).to("gemini").payload
    (declaration,) = payload["functionDeclarations"]
    assert declaration["parametersJsonSchema"] == schema
    assert "parameters" not in declaration


# Ollama wants an argument object on replay

CHAT = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"b":2,"a":1}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
]


def test_chat_history_goes_to_ollama_with_objects_and_names_and_back_as_text() -> None:
    there = messages_to("ollama", messages_from("openai", {"messages": CHAT}))
    said, answered = there.payload["messages"]
    assert said["content"] == ""
    assert said["tool_calls"][0]["function"] == {"name": "f", "arguments": {"b": 2, "a": 1}}
    assert (answered["tool_name"], answered["content"]) == ("f", "ok")
    assert not there.losses
    back = messages_to("openai", messages_from("ollama", there.payload))
    assert back.payload["messages"] == CHAT
