"""The ``tags`` dialect from text to events: exact calls run once, all else is a verdict, whatever the chunks."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol import Event, EventType, Parser, Tool, ToolCall, get_dialect, parse
from callwright.serving.protocol.tools import CODE, WEB
from callwright.serving.protocol.values import RejectionCode as Code

pytestmark = pytest.mark.unit

WEB_CALL = '<web>{"type":"web","q":"x","k":3}</web>'
CODE_CALL = '<code>{"type":"code","code_command":"ls"}</code>'
Shape = list[tuple[str, str, Any]]


def shape(events: Sequence[Event]) -> Shape:
    """The events with neighbours of one type and payload joined."""
    joined: Shape = []
    for event in events:
        if joined and joined[-1][0] == event.type and joined[-1][2] == event.payload and event.content:
            joined[-1] = (event.type, joined[-1][1] + event.content, event.payload)
        else:
            joined.append((str(event.type), event.content, event.payload))
    return joined


def run(chunks: Sequence[str]) -> tuple[Parser, Shape]:
    parser = Parser("tags")
    events = [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()
    return parser, shape(events)


def codes(parser: Parser) -> tuple[list[Code], list[Code]]:
    return [item.code for item in parser.rejections], [item.code for item in parser.violations]


def test_think_then_call() -> None:
    parser, events = run([f"<think>look it up</think>\n{WEB_CALL}"])
    assert events == [
        ("think", "look it up", None),
        ("call", '{"name":"web","args":{"q":"x","k":3}}', None),
        ("execute", "", None),
    ]
    assert [call.body() for call in parser.calls] == [b'{"type":"web","q":"x","k":3}']
    assert (parser.turn_over, parser.discarded, parser.solution, codes(parser)) == (True, 0, None, ([], []))


def test_solution_ends_the_turn() -> None:
    text = "<think>easy</think><solution>42</solution>"
    parser, events = run([text + "\n"])
    assert events == [
        ("think", "easy", None),
        ("respond", "42", {"channel": "solution"}),
        ("end", "", None),
    ]
    assert (parser.solution, parser.turn_over, parser.consumed, parser.discarded) == ("42", True, len(text), 1)


def test_plain_text_is_an_answer_but_blanks_between_tags_are_not() -> None:
    text = "Hello.\n<think> a </think>\n \n<think>\n</think> bye \n"
    parser, events = run([text])
    assert events == [("respond", "Hello.\n", None), ("think", " a ", None), ("respond", " bye \n", None)]
    assert not parser.turn_over
    assert parser.consumed == len(text)


@pytest.mark.parametrize("text", ["", " \n", "<think></think>", "<think> </think>\n"])
def test_nothing_said_gives_no_event(text: str) -> None:
    assert run([text])[1] == []


def test_an_empty_solution_is_still_a_solution() -> None:
    parser, events = run(["<solution></solution>"])
    assert events == [("end", "", None)]
    assert parser.solution == ""


@pytest.mark.parametrize(
    "command",
    [
        "echo '</code>'",
        "echo '<code>' '</web>' '</think>' '<tool_result>'",
        "if (x) { y(); }",
        "cp notes.{txt,md",
        'echo } ] " {',
        "echo \"a\" && echo 'b'",
        "python3 - <<EOF\nprint('é 😀')\nEOF",
        "<html><body>x</body></html>",
        "back\\slash \\",
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
def test_any_argument_text_arrives_whole(command: str, escaped: bool) -> None:
    body = json.dumps({"type": "code", "code_command": command}, ensure_ascii=escaped)
    for text in (f"<code>{body}</code>", f"<code>\n {body}\n</code>"):
        for chunks in ([text], list(text)):
            parser, events = run(chunks)
            assert [kind for kind, _, _ in events] == ["call", "execute"]
            assert parser.calls[0].arguments == {"code_command": command}


def test_the_first_call_runs_and_the_second_is_reported() -> None:
    parser, events = run([f"{WEB_CALL}\n{CODE_CALL} and more"])
    assert [kind for kind, _, _ in events] == ["call", "execute", "error"]
    assert [call.name for call in parser.calls] == ["web"]
    assert codes(parser) == ([], [Code.SECOND_CALL])
    assert parser.violations[0].tool == "code"
    assert parser.violations[0].offset == len(WEB_CALL) + 1
    assert parser.discarded == len(f"\n{CODE_CALL} and more")


def test_what_follows_the_end_is_discarded_counted_and_never_shown() -> None:
    tail = f"<tool_result>made up</tool_result><think>ok {WEB_CALL}</think><solution>7</solution> bye"
    parser, events = run([CODE_CALL + tail])
    assert [kind for kind, _, _ in events] == ["call", "execute", "error", "error"]
    assert codes(parser) == ([], [Code.FORGED_RESULT, Code.FORBIDDEN_PLACE])
    assert (parser.solution, parser.incomplete) == (None, None)
    assert (parser.consumed, parser.discarded) == (len(CODE_CALL), len(tail))


def test_a_call_after_the_solution_is_not_run() -> None:
    parser, events = run([f"<solution>1</solution>{CODE_CALL}"])
    assert [kind for kind, _, _ in events] == ["respond", "end", "error"]
    assert codes(parser) == ([], [Code.FORBIDDEN_PLACE])
    assert (parser.calls, parser.solution) == ([], "1")


def test_a_rejected_call_ends_the_turn_too() -> None:
    bad = '<web>{"type":"web","q":"x","k":99}</web>'
    parser, events = run([f"{bad}{WEB_CALL}"])
    assert [kind for kind, _, _ in events] == ["result", "error"]
    assert codes(parser) == ([Code.OUT_OF_RANGE], [Code.SECOND_CALL])
    assert (parser.calls, parser.turn_over, parser.consumed) == ([], True, len(bad))


def test_a_rejection_is_one_failure_result_with_cause_place_and_schema() -> None:
    (event,) = parse('<web>{"type":"web","q":"x","k":"3"}</web>')
    assert event.type is EventType.RESULT
    assert event.payload == {
        "tools_executed": 0,
        "success_count": 0,
        "failure_count": 1,
        "rejection": {"code": "wrong_type", "message": 'k must be integer, not "3"', "offset": 26, "tool": "web"},
    }
    (element,) = json.loads(event.content)
    assert (element["tool"], element["status"]) == ("web", "failure")
    told = json.loads(element["content"])
    assert told["code"] == "wrong_type"
    assert told["schema"]["properties"]["k"] == {"type": "integer", "minimum": 1, "maximum": 10}
    assert json.loads(json.dumps(event.to_dict()))["type"] == "result"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('<web>{"type":"web","q":"x","k":1}{"type":"web","q":"y","k":1}</web>', Code.MALFORMED_JSON),
        ('<code>{"type":"web","q":"x","k":1}</code>', Code.FOREIGN_TYPE),
        ('<code>{"code_command":"ls"}</code>', Code.MISSING_KEY),
        ("<code>ls -l</code>", Code.MALFORMED_JSON),
        ("<code></code>", Code.MALFORMED_JSON),
        ("<code>{}</code>", Code.MISSING_KEY),
        ("<code>{'type':'code','code_command':'ls'}</code>", Code.MALFORMED_JSON),
        ('<code>```json\n{"type":"code","code_command":"ls"}\n```</code>', Code.MALFORMED_JSON),
        ('<code>[{"type":"code","code_command":"ls"}]</code>', Code.NOT_AN_OBJECT),
        (f"<code>{CODE_CALL}</code>", Code.MALFORMED_JSON),
        ('<code>{"type":"code","code_command":"a\nb"}</code>', Code.MALFORMED_JSON),
        ('<code>{"type":"code","code_command":"ls","timeout_s":9}</code>', Code.EXTRA_KEY),
        ('<azure>{"type":"azure","azure_command":" "}</azure>', Code.BLANK_STRING),
        ('<web>{"type":"WEB ","q":"x","k":1}</web>', Code.FOREIGN_TYPE),
        ('<web>{"type":"web","q":"x"}</web>', Code.MISSING_KEY),
        ('<web>{"type":"web","q":"x","k":true}</web>', Code.WRONG_TYPE),
        ('<web>{"type":"web","q":"x","k":1,"k":2}</web>', Code.DUPLICATE_KEY),
        ('<web>{"type":"web","q":"x","k":NaN}</web>', Code.NON_FINITE_NUMBER),
        ('<web>find {"type":"web","q":"x","k":1}</web>', Code.MALFORMED_JSON),
        ('<web>{"type":"web","q":"\\udead","k":1}</web>', Code.LONE_SURROGATE),
    ],
)
def test_a_bad_call_is_refused_with_its_code_and_never_run(text: str, code: Code) -> None:
    parser, events = run([text])
    assert events[0][0] == "result"
    assert "respond" not in [kind for kind, _, _ in events]
    assert [item.code for item in parser.rejections] == [code]
    assert (parser.calls, parser.turn_over) == ([], True)


@pytest.mark.parametrize(
    ("body", "good"),
    [
        ('{"type":"code","code_command":"hel}', '{"type":"code","code_command":"hel}'),
        ('{"type":"code","code_command":"hel}</code>', '{"type":"code","code_command":"hel}</code>'),
        ('{"type":"code","code_command":"say "hi now"}</code>', '{"type":"code","code_command":"say "'),
        ('{"type":"code","code_command":"ls"}', '{"type":"code","code_command":"ls"}'),
        ('{"type":"code","code_command":"ls"}</cod', '{"type":"code","code_command":"ls"}'),
        ("", ""),
    ],
)
def test_a_call_that_is_cut_off_is_refused_at_its_cause(body: str, good: str) -> None:
    parser, events = run([f"so: <code>{body}"])
    assert [kind for kind, _, _ in events] == ["respond", "result"]
    (rejection,) = parser.rejections
    assert (rejection.code, rejection.offset, rejection.tool) == (Code.TRUNCATED, len(good), "code")
    assert (parser.calls, parser.turn_over, parser.incomplete) == ([], False, "code")


def test_a_call_without_end_is_refused_at_the_bound() -> None:
    parser = Parser("tags")
    piece = '"' + "x" * 65_533 + '",'
    events: list[Event] = []
    fed = 0
    for chunk in ["<code>", *[piece] * 20]:
        fed += len(chunk)
        events += parser.feed(chunk)
        if parser.turn_over:
            break
    assert [event.type for event in events] == [EventType.RESULT]
    assert [item.code for item in parser.rejections] == [Code.TOO_LARGE]
    assert parser.consumed == len("<code>") + (1 << 20) + 1
    assert len(parser.rejections[0].raw) < 5000
    assert parser.feed("</code>" + CODE_CALL)[0].type is EventType.ERROR
    assert parser.close() == []
    assert codes(parser) == ([Code.TOO_LARGE], [Code.SECOND_CALL])


@pytest.mark.parametrize("chunked", [False, True])
def test_a_call_of_a_shipped_tool_that_is_not_offered_is_refused(chunked: bool) -> None:
    parser = Parser("tags", [WEB])
    events = [event for chunk in (CODE_CALL if chunked else [CODE_CALL]) for event in parser.feed(chunk)]
    events += parser.close()
    assert [event.type for event in events] == [EventType.RESULT]
    assert [(item.code, item.tool, item.offset) for item in parser.rejections] == [(Code.UNKNOWN_TOOL, "code", 8)]
    assert (parser.calls, parser.turn_over) == ([], True)
    (result,) = json.loads(events[0].content)
    assert (result["tool"], result["status"]) == ("code", "failure")
    told = json.loads(result["content"])
    assert told["message"] == 'there is no tool "code"'
    assert told["schema"]["properties"] == {"type": {"enum": ["web"]}}


def test_among_other_tools_a_shipped_tag_is_text() -> None:
    parser = Parser("tags", [Tool("mail", "", {"type": "object"})])
    events = parser.feed("write <code>ls</code>") + parser.close()
    assert [(event.type, event.content) for event in events] == [(EventType.RESPOND, "write <code>ls</code>")]


def test_a_call_in_think_is_not_run_but_diagnosed() -> None:
    think = 'maybe <code>{"type":"code","code_command":"rm -rf x"}</code>'
    parser, events = run([f"<think>{think}</think><solution>no</solution>"])
    assert [(kind, content) for kind, content, _ in events if kind != "error"] == [
        ("think", think),
        ("respond", "no"),
        ("end", ""),
    ]
    assert [kind for kind, _, _ in events] == ["think", "error", "respond", "end"]
    assert codes(parser) == ([], [Code.FORBIDDEN_PLACE])
    assert (parser.violations[0].tool, parser.violations[0].offset) == ("code", 13)
    assert (parser.calls, parser.solution) == ([], "no")


@pytest.mark.parametrize("block", ["think", "solution", "tool_result"])
def test_a_call_inside_any_other_block_is_not_run(block: str) -> None:
    parser, _ = run([f"<{block}>{CODE_CALL} {CODE_CALL} {WEB_CALL}</{block}>"])
    found = [(item.tool, item.code) for item in parser.violations if item.code is not Code.FORGED_RESULT]
    assert found == [("code", Code.FORBIDDEN_PLACE), ("web", Code.FORBIDDEN_PLACE)]
    assert "2 times" in parser.violations[0].message
    assert parser.calls == []


@pytest.mark.parametrize("end", ["</tool_result>", ""])
def test_a_forged_result_is_dropped_and_reported(end: str) -> None:
    parser, events = run([f"a<tool_result>[web-result] {{}}{end}"])
    assert [kind for kind, _, _ in events] == ["respond", "error"]
    assert events[0][1] == "a"
    assert codes(parser) == ([], [Code.FORGED_RESULT])
    assert parser.violations[0].offset == 1
    assert not parser.turn_over


def test_an_unclosed_think_is_flagged_and_runs_nothing() -> None:
    parser, events = run([f"<think>hm {CODE_CALL}"])
    assert events[0] == ("think", f"hm {CODE_CALL}", None)
    assert events[1][0] == "error"
    assert events[2] == ("think", "", {"incomplete": True})
    assert (parser.incomplete, parser.calls, parser.turn_over) == ("think", [], False)


def test_an_unclosed_solution_is_shown_but_ends_nothing() -> None:
    parser, events = run(["<solution>4"])
    assert events == [
        ("respond", "4", {"channel": "solution"}),
        ("respond", "", {"channel": "solution", "incomplete": True}),
    ]
    assert (parser.incomplete, parser.solution, parser.turn_over) == ("solution", None, False)


@pytest.mark.parametrize(
    "text", ["</code>", "<CODE>{}</CODE>", '<code id="1">', "< code>", "<results>[]</results>", "a <"]
)
def test_what_is_no_marker_of_the_dialect_is_plain_text(text: str) -> None:
    assert run([text])[1] == [("respond", text, None)]


def test_tags_follow_from_the_tools() -> None:
    clock = Tool("clock", "The time.", {"type": "object", "properties": {}, "additionalProperties": False})
    parser = Parser("tags", tools=[clock])
    events = parser.feed(f'{WEB_CALL}<clock>{{"type":"clock"}}</clock>') + parser.close()
    assert shape(events) == [
        ("respond", WEB_CALL, None),
        ("call", '{"name":"clock","args":{}}', None),
        ("execute", "", None),
    ]
    assert shape(parse(CODE_CALL, tools=[])) == [("respond", CODE_CALL, None)]


@pytest.mark.parametrize("names", [["think"], ["tool_result"], ["a b"], [""], ["x", "x"], ["</a>"]])
def test_tools_that_cannot_be_tags_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="tag"):
        Parser("tags", tools=[Tool(name, "", {"type": "object"}) for name in names])


def test_an_unknown_dialect_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="tags"):
        Parser("smoke")


def test_markers_are_listed_once() -> None:
    own = Tool("mail", "", {"type": "object"})
    for tool, names in ((own, ("mail",)), (CODE, ("web", "code", "azure"))):
        markers = get_dialect("tags").markers([tool])
        expected = [f"<{slash}{name}>" for name in ("think", "solution", "tool_result", *names) for slash in ("", "/")]
        assert sorted(markers) == sorted(expected)


def test_a_closed_parser_takes_no_more() -> None:
    parser = Parser("tags")
    parser.feed("a")
    parser.close()
    assert parser.close() == []
    with pytest.raises(ValueError, match="closed"):
        parser.feed("b")


def test_turn_over_is_known_with_the_character_that_ends_the_turn() -> None:
    for text in (CODE_CALL, "<web>{}</web>", "<solution>x</solution>"):
        parser = Parser("tags")
        for char in text:
            assert not parser.turn_over
            parser.feed(char)
        assert parser.turn_over
        parser.feed(" tail")
        assert (parser.consumed, parser.discarded) == (len(text), 5)


def test_text_streams_before_its_block_closes() -> None:
    parser = Parser("tags")
    assert shape(parser.feed("<think>let me")) == [("think", "let me", None)]
    assert shape(parser.feed(" see</th")) == [("think", " see", None)]
    assert parser.feed("ink>\n<solu") == []
    assert shape(parser.feed("tion>4")) == [("respond", "4", {"channel": "solution"})]


MIXED = [
    f"Hi <think>a é 😀</think> x {CODE_CALL} tail",
    '<think>q</think>\n<code>{"type":"code","code_command":"echo \'</code>\' \\"</think>\\\\"}</code>\n',
    f"<think>n <code>{{}}</code> m</think><solution>4 {WEB_CALL} 2</solution>{CODE_CALL}",
    "a<tool_result>b</tool_result>c<think>d",
    '<web>{"type":"web","q":"x","k":99}</web><tool_result>z',
    '<web>{"type":"web","q":"<</web',
    "\n <solution> \n</solution>",
    "<solution>half </solut",
]


def verdicts(parser: Parser) -> Any:
    calls = [(call.name, call.arguments) for call in parser.calls]
    ends = (parser.solution, parser.incomplete, parser.turn_over, parser.consumed, parser.discarded)
    return calls, parser.rejections, parser.violations, ends


def check_chunking(text: str, chunkings: Sequence[Sequence[str]]) -> None:
    parser, events = run([text])
    expected = (events, verdicts(parser))
    for chunks in chunkings:
        other, got = run(chunks)
        assert (got, verdicts(other)) == expected, chunks


@pytest.mark.parametrize("text", MIXED)
def test_every_two_way_split_gives_the_same(text: str) -> None:
    check_chunking(text, [list(text), *([text[:cut], text[cut:]] for cut in range(len(text) + 1))])


@pytest.mark.parametrize("text", MIXED)
def test_random_splits_give_the_same(text: str) -> None:
    rng = random.Random(text)
    chunkings = []
    for _ in range(200):
        cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(2, 9)))
        chunkings.append([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])
    check_chunking(text, chunkings)


PIECES = [
    *get_dialect("tags").markers(get_dialect("tags").default_tools),
    CODE_CALL,
    WEB_CALL,
    '{"type":"code","code_command":"',
    *'"\\{}<>/ \na',
    "</",
    "é😀",
    "\ud800",
]


def test_fuzz_runs_only_exact_calls_whatever_the_chunks() -> None:
    rng = random.Random(20_000)
    for _ in range(20_000):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 9)))
        cuts = sorted(rng.choices(range(len(text) + 1), k=3))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        parser, events = run(chunks)
        whole, expected = run([text])
        assert (events, verdicts(parser)) == (expected, verdicts(whole)), text
        kinds = [kind for kind, _, _ in events]
        assert kinds.count("execute") == kinds.count("call") == len(parser.calls)
        assert len(parser.calls) + len(parser.rejections) <= 1
        assert kinds.count("result") == len(parser.rejections)
        assert kinds.count("error") == len(parser.violations)
        assert kinds.count("end") == (parser.solution is not None)
        for call in parser.calls:
            assert json.loads(text[: parser.consumed].rsplit(f"<{call.name}>", 1)[1].removesuffix(f"</{call.name}>"))


COMMANDS = st.text(min_size=1).filter(lambda text: text.strip())


@settings(max_examples=300, deadline=None)
@given(COMMANDS, st.text(alphabet=st.characters(exclude_characters="<")), st.booleans())
def test_what_is_written_is_what_is_read(command: str, thought: str, ascii_only: bool) -> None:
    body = json.dumps({"type": "code", "code_command": command}, ensure_ascii=ascii_only)
    text = f"<think>{thought}</think><code>{body}</code>"
    parser, events = run([text])
    assert parser.calls[0].arguments == {"code_command": command}
    assert [content for kind, content, _ in events if kind == "think"] == ([thought] if thought.strip() else [])
    assert parser.consumed == len(text)


def test_what_is_rendered_is_the_exact_queue_body_in_its_tag() -> None:
    call = ToolCall("code", {"code_command": "echo '</code>' é"})
    text = get_dialect("tags").render_call(call)
    assert text == f"<code>{call.body().decode()}</code>"
    parser, _ = run([text, get_dialect("tags").render_solution("4")])
    assert [parsed.body() for parsed in parser.calls] == [call.body()]
    for calls in ([], [call, call], [ToolCall("think", {})], [ToolCall("a><b", {})]):
        with pytest.raises(ValueError, match="no words"):
            get_dialect("tags").render_calls(calls)
