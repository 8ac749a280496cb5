"""The one validator: exact bodies in, calls out; every refusal has its code, its place and no exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol import Rejection, Tool, ToolCall, validate
from callwright.serving.protocol.tools import CODE, DEFAULT_TOOLS
from callwright.serving.protocol.values import RejectionCode as Code

pytestmark = pytest.mark.unit

GOOD = {
    "web": {"type": "web", "q": "capital of Norway", "k": 3},
    "code": {"type": "code", "code_command": "echo 'a' && echo \"b\""},
    "azure": {"type": "azure", "azure_command": "az group list"},
}


def refused(body: str | bytes, **options: Any) -> tuple[Code, int]:
    verdict = validate(body, **options)
    assert isinstance(verdict, Rejection)
    assert verdict.message
    return verdict.code, verdict.offset


@pytest.mark.parametrize("name", GOOD)
def test_exact_bodies_are_accepted_as_text_and_as_bytes(name: str) -> None:
    text = json.dumps(GOOD[name])
    for body in (text, text.encode(), f" \n{text}\t"):
        call = validate(body, expected=name)
        assert isinstance(call, ToolCall)
        assert {"type": call.name, **call.arguments} == GOOD[name]


@pytest.mark.parametrize("name", GOOD)
def test_an_accepted_call_travels_as_the_exact_body(name: str) -> None:
    body = json.dumps(GOOD[name], separators=(",", ":"))
    call = validate(body)
    assert isinstance(call, ToolCall)
    assert call.body() == body.encode()


def test_the_order_of_keys_does_not_matter() -> None:
    call = validate('{"k":1,"type":"web","q":"x"}')
    assert isinstance(call, ToolCall)
    assert call.body() in (b'{"type":"web","k":1,"q":"x"}', b'{"type":"web","q":"x","k":1}')


@pytest.mark.parametrize(
    ("body", "code", "offset"),
    [
        ('{"type":"web","q":"x","k":3,"site":"y"}', Code.EXTRA_KEY, 35),
        ('{"type":"WEB ","q":"x","k":3}', Code.UNKNOWN_TOOL, 8),
        ('{"type":" web","q":"x","k":3}', Code.UNKNOWN_TOOL, 8),
        ('{"type":"web","q":"x"}', Code.MISSING_KEY, 0),
        ('{"type":"web","q":"x","k":"3"}', Code.WRONG_TYPE, 26),
        ('{"type":"web","q":"x","k":true}', Code.WRONG_TYPE, 26),
        ('{"type":"web","q":"x","k":3.0}', Code.WRONG_TYPE, 26),
        ('{"type":"web","q":"x","k":null}', Code.WRONG_TYPE, 26),
        ('{"type":"web","q":["x"],"k":1}', Code.WRONG_TYPE, 18),
        ('{"type":"web","q":"x","k":99}', Code.OUT_OF_RANGE, 26),
        ('{"type":"web","q":"x","k":0}', Code.OUT_OF_RANGE, 26),
        ('{"type":"web","q":"","k":3}', Code.BLANK_STRING, 18),
        ('{"type":"web","q":" \\n\\t","k":3}', Code.BLANK_STRING, 18),
        ('{"type":"code","code_command":" "}', Code.BLANK_STRING, 30),
        ('{"type":"azure","azure_command":7}', Code.WRONG_TYPE, 32),
        ('{"type":"web","q":"x","k":3,"k":4}', Code.DUPLICATE_KEY, 28),
        ('{"type":"web","type":"web","q":"x","k":3}', Code.DUPLICATE_KEY, 14),
        ('{"type":"web","q":"x","k":NaN}', Code.NON_FINITE_NUMBER, 26),
        ('{"type":"web","q":"\\ud800","k":1}', Code.LONE_SURROGATE, 19),
        ('Here: {"type":"web","q":"x","k":3}', Code.MALFORMED_JSON, 0),
        ('{"type":"web","q":"x","k":3} done', Code.MALFORMED_JSON, 29),
        ('```json\n{"type":"web","q":"x","k":3}\n```', Code.MALFORMED_JSON, 0),
        ("{'type':'web','q':'x','k':3}", Code.MALFORMED_JSON, 1),
        ('{"q":"x","k":3}', Code.MISSING_KEY, 0),
        ('{"Type":"web","q":"x","k":3}', Code.MISSING_KEY, 0),
        ('{"type":1,"q":"x","k":3}', Code.WRONG_TYPE, 8),
        ('{"type":["web"],"q":"x","k":3}', Code.WRONG_TYPE, 8),
        ('{"type":"shell","cmd":"ls"}', Code.UNKNOWN_TOOL, 8),
        ('  [{"type":"web"}]', Code.NOT_AN_OBJECT, 2),
        ('"web"', Code.NOT_AN_OBJECT, 0),
        ("null", Code.NOT_AN_OBJECT, 0),
        ("", Code.MALFORMED_JSON, 0),
    ],
)
def test_refusals(body: str, code: Code, offset: int) -> None:
    assert refused(body) == (code, offset)
    assert refused(body.encode()) == (code, offset)


def test_a_body_of_another_tool_is_foreign() -> None:
    body = json.dumps(GOOD["web"])
    assert refused(body, expected="code") == (Code.FOREIGN_TYPE, 9)
    assert refused('{"type":"Code","code_command":"ls"}', expected="code") == (Code.FOREIGN_TYPE, 8)


def test_a_tool_that_is_not_declared_here_is_unknown() -> None:
    assert refused(json.dumps(GOOD["web"]), tools=[CODE])[0] is Code.UNKNOWN_TOOL
    assert refused(json.dumps(GOOD["code"]), tools=[])[0] is Code.UNKNOWN_TOOL


def test_bytes_that_are_not_utf8_are_refused_at_the_byte() -> None:
    verdict = validate(b'{"type":"code","code_command":"\xc3\xa9\xff"}', expected="code")
    assert isinstance(verdict, Rejection)
    assert (verdict.code, verdict.offset, verdict.tool) == (Code.MALFORMED_JSON, 33, "code")


def test_rejections_are_bounded() -> None:
    for body in (
        "x" * 100_000,
        json.dumps({"type": "y" * 100_000}),
        json.dumps({"type": "code", "code_command": "ls", "z" * 100_000: 1}),
        json.dumps({"type": "web", "q": "x", "k": "z" * 100_000}),
        '{"type":1,"' + "k" * 100_000 + '":1,"' + "k" * 100_000 + '":2}',
    ):
        verdict = validate(body)
        assert isinstance(verdict, Rejection)
        assert len(verdict.raw) <= 2048
        assert len(verdict.message) <= 200


RICH = Tool(
    name="rich",
    description="Every kind of argument.",
    input_schema={
        "type": "object",
        "properties": {
            "unit": {"enum": ["C", "F", 1]},
            "ratio": {"type": "number", "minimum": 0, "maximum": 1},
            "flag": {"type": "boolean"},
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string", "minLength": 2, "maxLength": 5}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "either": {"type": ["string", "null"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "additionalProperties": False,
    },
)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"unit": "C", "ratio": 0.5, "flag": False, "list": [1, 2], "place": {"city": "Oslo"}},
        {"ratio": 1, "either": None, "labels": {"a": "b"}},
        {"unit": 1, "either": ""},
    ],
)
def test_a_declared_tool_needs_no_code(arguments: dict[str, Any]) -> None:
    call = validate(json.dumps({"type": "rich", **arguments}), [RICH])
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments


@pytest.mark.parametrize(
    ("arguments", "code", "at"),
    [
        ({"unit": "K"}, Code.OUT_OF_RANGE, '"K"'),
        ({"unit": True}, Code.OUT_OF_RANGE, "true"),
        ({"ratio": 1.5}, Code.OUT_OF_RANGE, "1.5"),
        ({"ratio": True}, Code.WRONG_TYPE, "true"),
        ({"flag": 0}, Code.WRONG_TYPE, "0"),
        ({"list": []}, Code.OUT_OF_RANGE, "[]"),
        ({"list": [1, 2, 3, 4]}, Code.OUT_OF_RANGE, "[1"),
        ({"list": [7, "8"]}, Code.WRONG_TYPE, '"8"'),
        ({"place": {}}, Code.MISSING_KEY, "{}"),
        ({"place": {"city": "Oslo", "zip": 55}}, Code.EXTRA_KEY, "55"),
        ({"place": {"city": "O"}}, Code.OUT_OF_RANGE, '"O"'),
        ({"place": {"city": "Trondheim"}}, Code.OUT_OF_RANGE, '"Tr'),
        ({"place": {"city": "  "}}, Code.BLANK_STRING, '"  "'),
        ({"either": 3}, Code.WRONG_TYPE, "3"),
        ({"labels": {"a": 9}}, Code.WRONG_TYPE, "9"),
    ],
)
def test_nested_violations_are_found_where_they_stand(arguments: dict[str, Any], code: Code, at: str) -> None:
    body = json.dumps({"type": "rich", **arguments})
    found, offset = refused(body, tools=[RICH])
    assert found is code
    assert body.startswith(at, offset)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["q", "k"]), inner),
    max_leaves=4,
)
BODIES = st.dictionaries(
    st.sampled_from(["type", "q", "k", "code_command", "azure_command", "x"]),
    JSON | st.sampled_from(["web", "code", "azure"]),
)


@settings(max_examples=1500, deadline=None)
@given(BODIES)
def test_only_exact_bodies_pass(body: dict[str, Any]) -> None:
    verdict = validate(json.dumps(body))
    names = {tool.name: {"type", *tool.properties} for tool in DEFAULT_TOOLS}
    kind = body.get("type")
    exact = isinstance(kind, str) and set(body) == names.get(kind)
    if exact and kind == "web":
        exact = (
            isinstance(body["q"], str) and type(body["k"]) is int and bool(body["q"].strip()) and 1 <= body["k"] <= 10
        )
    elif exact:
        command = body[f"{kind}_command"]
        exact = isinstance(command, str) and bool(command.strip())
    assert isinstance(verdict, ToolCall) == exact


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40))
def test_no_input_raises(body: bytes | str) -> None:
    assert isinstance(validate(body), Rejection)
