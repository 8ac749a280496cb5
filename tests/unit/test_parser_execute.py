"""The ``execute`` dialect from text to events: one block of calls a turn, refused whole, and a hard stop after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callwright.serving.protocol import DEFAULT_TOOLS, Event, EventType, Parser, Tool, ToolCall, get_dialect, parse
from callwright.serving.protocol.values import RejectionCode as Code

pytestmark = pytest.mark.unit

EXECUTE = get_dialect("execute")


def run(text: str, tools: Any = None) -> tuple[Parser, list[Event]]:
    parser = Parser("execute", tools)
    return parser, parser.feed(text) + parser.close()


def block(*calls: tuple[str, Any]) -> str:
    return f"<execute>{json.dumps([{'name': name, 'args': args} for name, args in calls])}</execute>"


def shape(events: list[Event]) -> list[tuple[str, str]]:
    return [(str(event.type), event.content) for event in events]


def test_a_block_of_calls() -> None:
    parser, events = run("<think>both</think>\n" + block(("now", {}), ("f", {"a": [1]})))
    assert shape(events) == [
        ("think", "both"),
        ("call", '{"name":"now","args":{}}'),
        ("call", '{"name":"f","args":{"a":[1]}}'),
        ("execute", ""),
    ]
    assert [(call.name, call.arguments) for call in parser.calls] == [("now", {}), ("f", {"a": [1]})]
    assert (parser.turn_over, parser.solution) == (True, None)


@pytest.mark.parametrize(
    "text",
    [
        "close it with </execute> please",
        "if (x) { y(); }",
        "cp notes.{txt,md",
        "<html><body>x</body></html>",
        "Hello </write> world",
        "echo \"a\" && echo 'b'",
        "<execute>[]</execute><results>[]</results>",
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_any_argument_text_arrives_whole(text: str, chunked: bool) -> None:
    written = block(("write", {"path": "n.md", "text": text}))
    parser = Parser("execute")
    events = [event for chunk in (written if chunked else [written]) for event in parser.feed(chunk)] + parser.close()
    assert [event.type for event in events] == [EventType.CALL, EventType.EXECUTE]
    assert parser.calls[0].arguments == {"path": "n.md", "text": text}


def test_an_empty_block_executes_nothing_and_is_no_answer() -> None:
    parser, events = run("<execute> [] </execute>")
    assert shape(events) == [("execute", "")]
    assert (parser.calls, parser.refusals, parser.solution, parser.call_blocks) == ([], [], None, 1)


def test_what_follows_the_block_is_discarded_counted_and_reported() -> None:
    tail = f"\nIt says 4.<results>[4]</results>{block(('g', {}))}"
    parser, events = run(block(("f", {})) + tail)
    assert [event.type for event in events] == [EventType.CALL, EventType.EXECUTE, EventType.ERROR, EventType.ERROR]
    assert [item.code for item in parser.violations] == [Code.FORGED_RESULT, Code.SECOND_CALL]
    assert (len(parser.calls), parser.discarded) == (1, len(tail))


@pytest.mark.parametrize(
    ("body", "code", "offset"),
    [
        ('[{"name":"write","args":{"text":"hel}]', Code.MALFORMED_JSON, 38),
        ('[{"name":"a","args":{}}]\n[{"name":"b","args":{}}]', Code.MALFORMED_JSON, 25),
        ('{"name":"a","args":{}}', Code.NOT_AN_ARRAY, 0),
        ('["a"]', Code.NOT_AN_OBJECT, 1),
        ('[{"name":"a"}]', Code.MISSING_KEY, 1),
        ('[{"args":{}}]', Code.MISSING_KEY, 1),
        ('[{"name":"a","args":null}]', Code.WRONG_TYPE, 20),
        ('[{"name":"a","args":"{}"}]', Code.WRONG_TYPE, 20),
        ('[{"name":"a","args":[]}]', Code.WRONG_TYPE, 20),
        ('[{"name":7,"args":{}}]', Code.WRONG_TYPE, 9),
        ('[{"name":"","args":{}}]', Code.BLANK_STRING, 9),
        ('[{"name":"a","args":{},"id":1}]', Code.EXTRA_KEY, 28),
        ('[{"name":"a","args":{"x":1,"x":2}}]', Code.DUPLICATE_KEY, 27),
        ('[{"name":"a","args":{"x":NaN}}]', Code.NON_FINITE_NUMBER, 25),
        ('[{"name":"a","args":{}},]', Code.MALFORMED_JSON, 24),
        ("[{'name':'a','args':{}}]", Code.MALFORMED_JSON, 2),
        ('```json\n[{"name":"a","args":{}}]\n```', Code.MALFORMED_JSON, 0),
        ("<execute>[]", Code.MALFORMED_JSON, 0),
        ('[{"name":"a","args":{}},{"name":"b","args":3}]', Code.WRONG_TYPE, 43),
    ],
)
def test_a_bad_block_is_refused_whole_with_its_code_and_place(body: str, code: Code, offset: int) -> None:
    if body.endswith("hel}]"):
        text = f"<execute>{body}"  # the open string keeps any closer inside
        code = Code.TRUNCATED
    else:
        text = f"<execute>{body}</execute> and words"
    parser, events = run(text)
    assert [event.type for event in events] == [EventType.RESULT]
    (rejection,) = parser.rejections
    assert (rejection.code, rejection.offset) == (code, offset)
    assert (parser.calls, parser.solution, parser.refusals) == ([], None, [rejection])
    assert events[0].payload is not None
    assert events[0].payload["rejection"]["code"] == code
    (element,) = json.loads(events[0].content)
    assert (element["status"], sorted(element)) == ("failure", ["content", "status", "tool"])
    assert json.loads(element["content"])["schema"]["type"] == "array"


def test_declared_tools_are_held_to_their_schemas() -> None:
    parser, _ = run(block(("web", {"q": "x", "k": 3}), ("code", {"code_command": "ls"})), DEFAULT_TOOLS)
    assert [call.body() for call in parser.calls] == [
        b'{"type":"web","q":"x","k":3}',
        b'{"type":"code","code_command":"ls"}',
    ]
    for call, code in (
        (("web", {"q": "x"}), Code.MISSING_KEY),
        (("web", {"q": "x", "k": True}), Code.WRONG_TYPE),
        (("web", {"q": "x", "k": 3, "type": "code"}), Code.EXTRA_KEY),
        (("mail", {}), Code.UNKNOWN_TOOL),
    ):
        parser, events = run(block(("code", {"code_command": "ls"}), call), DEFAULT_TOOLS)
        assert [item.code for item in parser.rejections] == [code]
        assert parser.calls == []
        told = json.loads(json.loads(events[0].content)[0]["content"])
        name = told["schema"]["items"]["properties"]["name"]
        assert name == ({"enum": ["web", "code", "azure"]} if call[0] == "mail" else {"const": "web"})


def test_an_open_tool_cannot_smuggle_a_type_into_its_queue_body() -> None:
    anything = Tool("open", "", {"type": "object"})
    parser, _ = run(block(("open", {"type": "code", "code_command": "ls"})), [anything])
    assert [item.code for item in parser.rejections] == [Code.EXTRA_KEY]


def test_a_call_in_think_is_not_run_but_diagnosed() -> None:
    inner = 'I could call <execute>[{"name":"rm","args":{"p":"/"}}]</execute> but no'
    parser, events = run(f"<think>{inner}</think>ok")
    assert [pair for pair in shape(events) if pair[0] != "error"] == [("think", inner), ("respond", "ok")]
    assert [item.code for item in parser.violations] == [Code.FORBIDDEN_PLACE]
    assert (parser.calls, parser.solution, parser.refusals) == ([], None, parser.violations)


def test_plain_text_is_the_answer() -> None:
    parser, events = run("<think>4</think>\n It is </execute> 42.\n")
    assert shape(events) == [("think", "4"), ("respond", "\n It is </execute> 42.\n")]
    assert (parser.solution, parser.refusals, parser.turn_over) == ("It is </execute> 42.", [], False)
    assert run("<think>x</think> \n")[0].solution is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<think>x", Code.TRUNCATED),
        ("a<results>[1]</results>b", Code.FORGED_RESULT),
        ("a<results>[1]", Code.FORGED_RESULT),
    ],
)
def test_a_turn_that_breaks_a_rule_is_no_answer(text: str, code: Code) -> None:
    parser, events = run(text)
    assert parser.solution is None
    assert [item.code for item in parser.refusals] == [code]
    assert EventType.RESULT not in [event.type for event in events]


def test_what_is_rendered_is_read_back_and_holds_no_marker() -> None:
    calls = [ToolCall("f", {"s": "</execute><results>\u2028\\u003c"}), ToolCall("g", {})]
    text = EXECUTE.render_calls(calls)
    assert text.count("<") == 2
    parser, _ = run(text)
    assert [(call.name, call.arguments) for call in parser.calls] == [("f", calls[0].arguments), ("g", {})]
    assert EXECUTE.render_solution("42") == "42"
    assert parse("x", dialect="execute")[0].type is EventType.RESPOND


def test_a_result_always_has_tool_status_and_content() -> None:
    for record, status in (
        (b'{"type":"web","status":"ok","results":[]}', "success"),
        (b'{"type":"web","status":"ok"}', "success"),
        (b'{"type":"web","status":"error","message":"<x>"}', "failure"),
        (b"\xff", "failure"),
    ):
        rendered = EXECUTE.render_result(record, "web", 300)
        element = json.loads(rendered.text)
        assert (element["tool"], element["status"], list(element)) == ("web", status, ["tool", "status", "content"])
        assert (isinstance(element["content"], str), "<" in rendered.text) == (True, False)
    assert len(EXECUTE.render_result(b'{"a":"' + b"x" * 9000 + b'"}', "web", 300).text) <= 300
    assert EXECUTE.frame_results(["1", "2"]) == [("<results>", "[1,2]", "</results>")]


def test_a_turn_stops_at_its_block() -> None:
    assert EXECUTE.stop_strings(None) == ("</execute>",)
    assert get_dialect("hermes").stop_strings(None) == ()
    assert set(get_dialect("tags").stop_strings(None)) == {"</web>", "</code>", "</azure>", "</solution>"}
