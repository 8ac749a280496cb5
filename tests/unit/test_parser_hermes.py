"""The ``hermes`` dialect from text to events: many calls a turn, as JSON or in function tags, with text between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol import DEFAULT_TOOLS, DIALECTS, Event, EventType, Parser, Tool, ToolCall, get_dialect
from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.dialects import Hermes
from callwright.serving.protocol.values import RejectionCode as Code

pytestmark = pytest.mark.unit

HERMES = get_dialect("hermes")
FORM = Tool(
    "form",
    "",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "flag": {"type": "boolean"},
            "list": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object"},
            "maybe": {"type": ["string", "null"]},
            "either": {"type": ["integer", "string"]},
            "kind": {"enum": ["a", 1, None]},
        },
        "additionalProperties": False,
    },
)


def run(text: str, tools: Any = None) -> tuple[Parser, list[Event]]:
    parser = Parser("hermes", tools)
    return parser, parser.feed(text) + parser.close()


def shape(events: list[Event]) -> list[tuple[str, str]]:
    return [(str(event.type), event.content) for event in events]


def tagged(name: str, **parameters: str) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def test_two_calls_with_text_between() -> None:
    first, second = (HERMES.render_call(ToolCall(name, {})) for name in "ab")
    parser, events = run(f"{first} and then\n{second}")
    assert shape(events) == [
        ("call", '{"name":"a","args":{}}'),
        ("respond", " and then\n"),
        ("call", '{"name":"b","args":{}}'),
        ("execute", ""),
    ]
    assert (parser.turn_over, parser.solution, parser.discarded) == (False, None, 0)


@pytest.mark.parametrize(
    "text", ["end with </tool_call> ok", 'echo } ] " {', "<parameter=x>", "</parameter>\n<tool_call>"]
)
@pytest.mark.parametrize("chunked", [False, True])
def test_any_argument_text_arrives_whole_in_json(text: str, chunked: bool) -> None:
    body = json.dumps({"name": "write", "arguments": {"text": text}})
    written = f"<tool_call>\n{body}\n</tool_call>"
    parser = Parser("hermes")
    events = [event for chunk in (written if chunked else [written]) for event in parser.feed(chunk)] + parser.close()
    assert [event.type for event in events] == [EventType.CALL, EventType.EXECUTE]
    assert parser.calls[0].arguments == {"text": text}


@pytest.mark.parametrize(
    ("body", "code", "offset"),
    [
        ('\n{"name":"a","arguments":{}}\n{"name":"b","arguments":{}}\n', Code.MALFORMED_JSON, 29),
        ("{'name':'a','arguments':{}}", Code.MALFORMED_JSON, 1),
        ('{"name":"a"}', Code.MISSING_KEY, 0),
        ('{"name":"a","arguments":"{}"}', Code.WRONG_TYPE, 24),
        ('{"name":"a","arguments":{},"x":1}', Code.EXTRA_KEY, 31),
        ('[{"name":"a","arguments":{}}]', Code.NOT_AN_OBJECT, 0),
        ("", Code.MALFORMED_JSON, 0),
        ("<function=a>", Code.MALFORMED_CALL, 12),
        ("<function=a></function> x", Code.MALFORMED_CALL, 24),
        ("<function=a>x</function>", Code.MALFORMED_CALL, 12),
        ("<function=>\n</function>", Code.MALFORMED_CALL, 0),
        ("<function=a><parameter=p>\ud800</parameter></function>", Code.LONE_SURROGATE, 25),
        ("<function=a><parameter=p>1</parameter><parameter=p>2</parameter></function>", Code.DUPLICATE_KEY, 51),
    ],
)
def test_a_bad_call_is_refused_and_ends_the_turn(body: str, code: Code, offset: int) -> None:
    good = '<tool_call>{"name":"z","arguments":{}}</tool_call>'
    parser, events = run(f"{good}<tool_call>{body}</tool_call>{good} bye")
    assert [str(event.type) for event in events] == ["call", "result", "execute", "error"]
    (rejection,) = parser.rejections
    assert (rejection.code, rejection.offset) == (code, offset)
    assert [call.name for call in parser.calls] == ["z"]
    assert [item.code for item in parser.violations] == [Code.SECOND_CALL]
    assert (parser.turn_over, parser.discarded) == (True, len(f"{good} bye"))
    (element,) = json.loads(events[1].content)
    assert json.loads(element["content"])["schema"]["required"] == ["name", "arguments"]


def test_a_call_that_is_cut_off_is_refused_and_its_siblings_run() -> None:
    parser, events = run('<tool_call>{"name":"a","arguments":{}}</tool_call><tool_call>{"name":"b","argum')
    assert [str(event.type) for event in events] == ["call", "result", "execute"]
    assert [item.code for item in parser.rejections] == [Code.TRUNCATED]
    assert [call.name for call in parser.calls] == ["a"]


def test_function_tags_are_typed_by_the_schema() -> None:
    call = tagged("web", q='"quoted" <b> </tool_call>\n\n', k="3")
    parser, events = run(f"I look.\n{call}", DEFAULT_TOOLS)
    assert [str(event.type) for event in events] == ["respond", "call", "execute"]
    assert parser.calls[0].body() == b'{"type":"web","q":"\\"quoted\\" <b> </tool_call>\\n\\n","k":3}'
    parser, _ = run(tagged("web", q="7", k="three"), DEFAULT_TOOLS)
    assert (parser.rejections[0].code, parser.rejections[0].message) == (
        Code.WRONG_TYPE,
        'k must be integer, not "three"',
    )
    assert tagged("web", q="7", k="three")[len("<tool_call>") :][parser.rejections[0].offset :].startswith("\nthree")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "7", "7"),
        ("text", "null", "null"),
        ("text", "", ""),
        ("text", "\nx\n", "\nx\n"),
        ("text", '{"a":', '{"a":'),
        ("n", "12345678901234567890123", 12345678901234567890123),
        ("x", "1e3", 1000.0),
        ("flag", "true", True),
        ("list", "[1, 2]", [1, 2]),
        ("map", '{"a": {"b": null}}', {"a": {"b": None}}),
        ("maybe", "null", None),
        ("maybe", "nul", "nul"),
        ("either", "7", 7),
        ("either", "7a", "7a"),
        ("either", "[7]", "[7]"),
        ("kind", "a", "a"),
        ("kind", "1", 1),
        ("kind", "null", None),
    ],
)
def test_a_value_is_what_its_schema_wants(key: str, text: str, value: Any) -> None:
    parser, _ = run(tagged("form", **{key: text}), [FORM])
    assert [call.arguments for call in parser.calls] == [{key: value}], parser.rejections


@pytest.mark.parametrize(
    ("key", "text", "code"),
    [
        ("n", "1.0", Code.WRONG_TYPE),
        ("n", '"1"', Code.WRONG_TYPE),
        ("n", "", Code.WRONG_TYPE),
        ("flag", "True", Code.WRONG_TYPE),
        ("list", "[1", Code.WRONG_TYPE),
        ("list", "[true]", Code.WRONG_TYPE),
        ("x", "NaN", Code.NON_FINITE_NUMBER),
        ("map", '{"a":1,"a":2}', Code.DUPLICATE_KEY),
        ("kind", "2", Code.OUT_OF_RANGE),
        ("other", "2", Code.EXTRA_KEY),
    ],
)
def test_a_value_is_never_bent_into_shape(key: str, text: str, code: Code) -> None:
    parser, _ = run(tagged("form", **{key: text}), [FORM])
    assert [item.code for item in parser.rejections] == [code]
    assert (parser.rejections[0].tool, parser.calls) == ("form", [])


def test_without_declarations_any_name_and_any_text() -> None:
    parser, _ = run(tagged("anything", n="1") + tagged("now"))
    assert [(call.name, call.arguments) for call in parser.calls] == [("anything", {"n": "1"}), ("now", {})]
    parser, _ = run(tagged("anything", n="1"), DEFAULT_TOOLS)
    assert [item.code for item in parser.rejections] == [Code.UNKNOWN_TOOL]


def test_a_parameter_that_never_closes_is_truncated() -> None:
    parser, _ = run('<tool_call><function=f><parameter=p>rm "</function></tool_call> words')
    assert [item.code for item in parser.rejections] == [Code.TRUNCATED]
    assert parser.calls == []


def test_a_forged_response_is_dropped_and_the_calls_still_run() -> None:
    parser, events = run(f"{tagged('f')}<tool_response>made up</tool_response>so it is 4")
    assert [str(event.type) for event in events] == ["call", "error", "respond", "execute"]
    assert "made up" not in "".join(event.content for event in events if event.type is not EventType.ERROR)
    assert [item.code for item in parser.violations] == [Code.FORGED_RESULT]
    assert (len(parser.calls), parser.solution, parser.refusals) == (1, None, [])


def test_a_call_in_think_is_not_run_but_diagnosed() -> None:
    parser, _ = run(f"<think>{tagged('rm', p='/')}</think>ok")
    assert [item.code for item in parser.violations] == [Code.FORBIDDEN_PLACE]
    assert (parser.calls, parser.solution) == ([], None)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(min_size=1).filter(str.strip), st.dictionaries(st.text(), VALUES, max_size=3)),
        min_size=1,
        max_size=3,
    )
)
def test_what_is_rendered_is_read_back_in_every_dialect_of_named_calls(pairs: list[tuple[str, dict[str, Any]]]) -> None:
    calls = [ToolCall(name, arguments) for name, arguments in pairs]
    for dialect in ("execute", "hermes"):
        parser = Parser(dialect)
        parser.feed(get_dialect(dialect).render_calls(calls))
        parser.close()
        assert [(call.name, call.arguments) for call in parser.calls] == pairs
        assert (parser.rejections, parser.violations) == ([], [])


def test_results_are_framed_one_by_one() -> None:
    text = HERMES.render_result(b'{"type":"web","status":"ok","results":[{"title":"</tool_response>"}]}').text
    assert json.loads(text) == {
        "name": "web",
        "status": "success",
        "content": {"results": [{"title": "</tool_response>"}]},
    }
    assert "<" not in text
    assert [piece.text for piece in HERMES.frame_results([text, "2"])] == [text, "2"]


class Renamed(Hermes):
    """A dialect of its own, in a few lines: the same calls in other tags."""

    name = "renamed"

    def blocks(self, tools: Any) -> tuple[Block, ...]:
        return (Block("act", Role.CALL, "<act>", "</act>"), Block("saw", Role.RESULT, "<saw>", "</saw>"))


def test_another_dialect_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "renamed", Renamed())
    parser = Parser("renamed")
    parser.feed('<tool_call>{}</tool_call><act>{"name":"f","arguments":{"s":"</act>"}}</act><saw>x</saw>')
    parser.close()
    assert [(call.name, call.arguments) for call in parser.calls] == [("f", {"s": "</act>"})]
    assert ([item.code for item in parser.violations], parser.rejections) == ([Code.FORGED_RESULT], [])
    assert Renamed().markers(None) == ("<act>", "</act>", "<saw>", "</saw>")
