"""Every place that is told is a byte of the UTF-8 text, whoever tells it, and however the text came."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callwright.serving.protocol import DEFAULT_TOOLS, Parser, Rejection, get_dialect, validate
from callwright.serving.protocol.byte_offsets import ByteRuler, byte_offset
from callwright.serving.protocol.strict_json import StrictJSONError, decode, locate
from callwright.serving.protocol.values import RejectionCode as Code
from callwright.serving.wires import ToolCall

pytestmark = pytest.mark.unit

WIDE = "é😀 ñ"  # 5 characters, 9 bytes


def at(text: str, cause: str) -> int:
    """Where the cause's only occurrence starts, counted apart from the code under test."""
    data = text.encode(errors="surrogatepass")
    assert data.count(cause.encode(errors="surrogatepass")) == 1
    return data.index(cause.encode(errors="surrogatepass"))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f'{{"{WIDE}":NaN}}', "NaN"),
        (f'["{WIDE}",1e999]', "1e999"),
        (f'["{WIDE}",{"9" * 5000}]', "9" * 5000),
        (f'{{"{WIDE}":1,"a":2,"\\u0061":3}}', '"\\u0061"'),
        (f'"{WIDE}\\ud800"', "\\ud800"),
        (f'"{WIDE}\ud800"', "\ud800"),
        (f'"{WIDE}\n"', "\n"),
        (f'["{WIDE}" x', "x"),
        (f'["{WIDE}"]x', "x"),
        (f'["{WIDE}",' + "[" * 63 + "{", "{"),
    ],
)
def test_of_strict_json(text: str, cause: str) -> None:
    with pytest.raises(StrictJSONError) as caught:
        decode(text)
    assert caught.value.offset == at(text, cause)
    assert f"(byte {caught.value.offset})" in str(caught.value)


def test_of_every_value() -> None:
    text = f'{{"{WIDE}":["{WIDE}",7],"b":{{"c":"x"}}}}'
    offsets = locate(text)
    starts = {(WIDE,): b"[", (WIDE, 1): b"7", ("b",): b'{"c"', ("b", "c"): b'"x"'}
    assert all(text.encode().startswith(start, offsets[path]) for path, start in starts.items())


@pytest.mark.parametrize(
    ("body", "code", "cause"),
    [
        (f'{{"type":"web","q":"{WIDE}","k":99}}', Code.OUT_OF_RANGE, "99"),
        (f'{{"type":"web","q":"{WIDE}","k":3,"x":"y"}}', Code.EXTRA_KEY, '"y"'),
        (f'{{"type":"web","q":"{WIDE}","k":3}} z', Code.MALFORMED_JSON, "z"),
    ],
)
def test_of_the_validator_for_text_and_for_bytes(body: str, code: Code, cause: str) -> None:
    for verdict in (validate(body), validate(body.encode())):
        assert isinstance(verdict, Rejection)
        assert (verdict.code, verdict.offset) == (code, at(body, cause))


def test_of_bytes_that_are_no_text() -> None:
    body = f'{{"type":"code","code_command":"{WIDE}'.encode() + b'\xff"}'
    verdict = validate(body)
    assert isinstance(verdict, Rejection)
    assert verdict.offset == body.index(b"\xff")


BODIES = {
    "tags": ("web", f'{{"type":"web","q":"{WIDE}","k":"3"}}', '"3"'),
    "execute": ("execute", f'[{{"name":"web","args":{{"q":"{WIDE}","k":"3"}}}}]', '"3"'),
    "hermes": ("tool_call", f'{{"name":"web","arguments":{{"q":"{WIDE}","k":"3"}}}}', '"3"'),
    "function tags": (
        "tool_call",
        f"<function=web><parameter=q>{WIDE}</parameter><parameter=k>x</parameter></function>",
        "x<",
    ),
}


@pytest.mark.parametrize("kind", BODIES)
def test_of_the_parser_and_of_the_text_that_the_model_reads(kind: str) -> None:
    tag, body, cause = BODIES[kind]
    dialect = kind if kind in ("tags", "execute") else "hermes"
    parser = Parser(dialect, DEFAULT_TOOLS)
    events = [event for char in f"{WIDE}<{tag}>{body}</{tag}>" for event in parser.feed(char)] + parser.close()
    (rejection,) = parser.rejections
    assert (rejection.code, rejection.offset) == (Code.WRONG_TYPE, at(body, cause))
    place = f'"offset":{at(body, cause)}'
    assert place in get_dialect(dialect).render_rejection(rejection, DEFAULT_TOOLS).text.replace("\\", "")
    (result,) = json.loads(next(event.content for event in events if event.type == "result"))
    assert place in result["content"]


@pytest.mark.parametrize("chunked", [False, True])
def test_of_a_call_without_end(chunked: bool) -> None:
    body = f'{{"type":"code","code_command":"{WIDE}'
    for limit, code, end in ((1 << 20, Code.TRUNCATED, body), (33, Code.TOO_LARGE, body[:33])):
        text = f"{WIDE}<code>{body}"
        parser = Parser("tags", limit=limit)
        for chunk in text if chunked else [text]:
            parser.feed(chunk)
        parser.close()
        assert [(found.code, found.offset) for found in parser.rejections] == [(code, len(end.encode()))]


@pytest.mark.parametrize("chunked", [False, True])
def test_of_what_breaks_a_rule_of_the_turn(chunked: bool) -> None:
    call = f'<web>{{"type":"web","q":"{WIDE}","k":3}}</web>'
    text = f"{WIDE}<think>{WIDE}<azure></think>{WIDE}<tool_result>{WIDE}</tool_result>{call}{WIDE}<code>"
    parser = Parser("tags")
    for chunk in text if chunked else [text]:
        parser.feed(chunk)
    parser.close()
    causes = {Code.FORBIDDEN_PLACE: "<azure>", Code.FORGED_RESULT: "<tool_result>", Code.SECOND_CALL: "<code>"}
    assert {found.code: found.offset for found in parser.violations} == {
        code: at(text, cause) for code, cause in causes.items()
    }


def test_of_an_answer_that_was_left_open() -> None:
    text = f"{WIDE}<think>{WIDE}"
    parser = Parser("hermes")
    parser.feed(text)
    parser.close()
    assert [(found.code, found.offset) for found in parser.refusals] == [(Code.TRUNCATED, len(text.encode()))]


@pytest.mark.parametrize("fmt", ["openai", "hermes"])
def test_of_a_wire(fmt: str) -> None:
    arguments = f'{{"q":"{WIDE}","k":"3"}}'
    text = f'{{"name":"web","arguments":{arguments}}}' if fmt == "hermes" else arguments
    said = (
        {"content": f"<tool_call>{text}</tool_call>"}
        if fmt == "hermes"
        else {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "web", "arguments": text}}]}
    )
    (verdict,) = ToolCall.extract(fmt, {"choices": [{"message": {"role": "assistant", **said}}]}, DEFAULT_TOOLS)
    assert isinstance(verdict, Rejection)
    # The text wire judges arguments that it has read already: their place is one in ``raw``.
    assert verdict.offset == at(verdict.raw, '"3"')
    if fmt == "hermes":
        (verdict,) = ToolCall.extract(fmt, {"content": f"<tool_call>{text[:-9]}"}, DEFAULT_TOOLS)
        assert isinstance(verdict, Rejection)
        assert (verdict.code, verdict.offset) == (Code.TRUNCATED, len(text[:-9].encode()))


@given(st.text(alphabet="aé😀\ud800<", max_size=12), st.lists(st.integers(0, 12), max_size=6))
def test_a_ruler_measures_any_chunks_as_the_whole(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    ruler = ByteRuler()
    for start, end in pairwise(edges):
        if not text[start:end].isascii():
            ruler.feed(text[start:end], start)
        for place in range(start, end + 1):
            assert ruler(place) == byte_offset(text, place) == len(text[:place].encode(errors="surrogatepass"))
