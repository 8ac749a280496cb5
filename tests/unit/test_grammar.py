"""The decoding grammar, read by llguidance itself: what it allows is valid, and what is valid it allows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from callwright.serving.protocol import DEFAULT_TOOLS, DIALECTS, Dialect, Parser, Tool, ToolCall, get_dialect
from callwright.serving.protocol.blocks import Role
from callwright.serving.protocol.grammar import FREE, Form, Rules
from callwright.serving.protocol.grammar_values import unenforced
from callwright.serving.protocol.schema import check

llguidance = pytest.importorskip("llguidance", reason="the extras train and serve have llguidance")
pytestmark = pytest.mark.unit

FORM = Tool(
    name="form",
    description="Everything that a declaration can ask for.",
    input_schema={
        "type": "object",
        "properties": {
            "first": {"type": "string", "minLength": 1, "maxLength": 5},
            "level": {"type": "integer", "minimum": -13, "maximum": 2050},
            "share": {"type": "number", "minimum": -1.5, "maximum": 2.5},
            "any": {},
            "kind": {"enum": ["a<b", 'q"\\', 7, None]},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "flag": {"type": ["boolean", "null"]},
            "inner": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "y": {"type": "integer"}},
                "additionalProperties": False,
            },
        },
        "required": ["level", "kind"],
        "additionalProperties": False,
    },
)
TOOLS = (*DEFAULT_TOOLS, FORM)
ALONE = Form(opened=True)  # a value with nothing before it
TOKENIZER = llguidance.LLTokenizer("byte")


def matcher(grammar: str) -> Any:
    made = llguidance.LLMatcher(TOKENIZER, llguidance.gbnf_to_lark.any_to_lark(grammar))
    assert made.get_error() == ""
    return made


def accepts(grammar: Any, text: str) -> bool:
    grammar.reset()
    data = list(text.encode())
    return bool(grammar.try_consume_tokens(data) == len(data) and grammar.is_accepting())


def sample(grammar: Any, rng: random.Random, start: str = "", longest: int = 600) -> str | None:
    """A random text of the grammar that starts so; None where it did not come to an end."""
    grammar.reset()
    text = bytearray(start.encode())
    assert grammar.try_consume_tokens(list(text)) == len(text)
    while len(text) < longest:
        if grammar.is_accepting() and rng.random() < 0.5:
            return text.decode()
        mask = grammar.compute_bitmask()
        allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        ends = [byte for byte in allowed if byte in b'"<>{}[],/\\']
        if not allowed:
            break
        byte = rng.choice(ends if ends and rng.random() < 0.4 else allowed)
        assert grammar.try_consume_tokens([byte]) == 1
        text.append(byte)
    return text.decode() if grammar.is_accepting() else None


def breaks_nothing(dialect: Dialect, text: str, tools: Sequence[Tool] | None) -> bool:
    parser = Parser(dialect.name, tools)
    parser.feed(text)
    parser.close()
    assert (parser.rejections, parser.violations, parser.incomplete, parser.discarded) == ([], [], None, 0), text
    return bool(parser.call_blocks) or parser.solution is not None


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("tools", [TOOLS, None], ids=["declared", "any"])
def test_every_text_of_the_grammar_is_a_turn_that_breaks_nothing(
    dialect: Dialect, tools: Sequence[Tool] | None
) -> None:
    grammar, rng = matcher(dialect.grammar(tools)), random.Random(dialect.name)
    openers = [block.opener for block in dialect.blocks(tools) if block.role is Role.CALL]
    done = 0
    for number in range(400):
        text = sample(grammar, rng, rng.choice(openers) if number % 2 else "")
        if text is not None:
            done += 1
            assert breaks_nothing(dialect, text, tools), text
    assert done > 200


@pytest.mark.parametrize("schema", FORM.properties.values(), ids=FORM.properties)
def test_every_text_of_a_value_is_valid_for_the_schema(schema: Any) -> None:
    rules = Rules(ALONE)
    name = rules.value(schema)
    grammar, rng = matcher(rules.turn(None, name)), random.Random(1)
    texts = {text for _ in range(300) if (text := sample(grammar, rng)) is not None}
    assert texts
    for text in texts:
        assert check(json.loads(text), schema) is None, text


def valid_arguments(rng: random.Random, tool: Tool) -> dict[str, Any]:
    text = "".join(rng.choices('ab é😀\n\t"\\/<>{}[]\u2028\x7f</execute>', k=rng.randint(0, 12)))
    values: dict[str, Callable[[], Any]] = {
        "q": lambda: text + "x",
        "k": lambda: rng.randint(1, 10),
        "code_command": lambda: " \n" + "y" + text,
        "azure_command": lambda: "é" + text,
        "first": lambda: "é" + text[:4],
        "level": lambda: rng.randint(-13, 2050),
        "share": lambda: rng.choice([-1, 0, 2, 0.25, 1.5, -0.75]),
        "any": lambda: rng.choice([None, True, 1, -2.5, text, [], [text, 1], {}, {text: [1]}]),
        "kind": lambda: rng.choice(["a<b", 'q"\\', 7, None]),
        "names": lambda: [text] * rng.randint(1, 3),
        "flag": lambda: rng.choice([True, False, None]),
        "inner": lambda: rng.choice([{}, {"x": 1e3}, {"y": -5}, {"x": 0.5, "y": 0}]),
    }
    required = tool.input_schema["required"]
    return {name: values[name]() for name in tool.properties if name in required or rng.random() < 0.5}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_thousand_valid_calls_are_allowed(dialect: Dialect) -> None:
    grammar, rng = matcher(dialect.grammar(TOOLS)), random.Random(7)
    for _ in range(1000):
        tool = rng.choice(TOOLS)
        call = ToolCall(tool.name, valid_arguments(rng, tool))
        canonical = dialect.render_call(call)
        assert accepts(grammar, canonical), canonical
        assert breaks_nothing(dialect, canonical, TOOLS)
        # The same as other programs write it: blanks behind commas and colons, and everything beyond ASCII escaped.
        body = canonical[canonical.index("{") : canonical.rindex("}") + 1]
        spaced = canonical.replace(body, json.dumps(json.loads(body)))
        assert accepts(grammar, f"<think>so</think>\n{spaced}"), spaced


@pytest.mark.parametrize(
    "text",
    [
        '<web>{"type":"web","q":" ","k":1}</web>',
        '<web>{"type":"web","q":"\\u00a0\\n","k":1}</web>',
        '<web>{"type":"web","q":"\\ud800","k":1}</web>',
        '<web>{"type":"web","q":"x","k":11}</web>',
        '<web>{"type":"web","q":"x","k":01}</web>',
        '<web>{"type":"web","q":"x","k":1,"k":1}</web>',
        '<web>{"type":"code","q":"x","k":1}</web>',
        '<web>{"type":"web","q":"x","k":1}</code>',
        "<tool_result>x</tool_result>",
        "<think><web></think><solution>1</solution>",
        "words",
    ],
)
def test_what_is_refused_is_not_allowed(text: str) -> None:
    assert not accepts(matcher(get_dialect("tags").grammar(None)), text)


def test_without_tools_there_is_only_the_answer() -> None:
    for dialect in DIALECTS.values():
        grammar = matcher(dialect.grammar([]))
        assert accepts(grammar, dialect.render_solution("42"))
        assert not accepts(grammar, '<execute>[]</execute><tool_call>{"name":"a","arguments":{}}</tool_call>')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "minimum": 0.2, "maximum": 0.8},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "array", "minItems": 3, "maxItems": 2},
        {"type": "integer", "enum": ["a"]},
        {"type": "object", "required": ["a"], "additionalProperties": False},
    ],
)
def test_a_schema_that_nothing_satisfies_has_no_grammar(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"schema|required"):
        Rules(FREE).value(schema)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (1, 10), (7, 7), (-3, 12), (98, 1234), (-1000, -87), (5, None)])
def test_integers_between_bounds_and_no_others(low: int, high: int | None) -> None:
    schema = {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})
    rules = Rules(ALONE)
    grammar = matcher(rules.turn(None, rules.value(schema)))
    for number in range(-1300, 1300):
        assert accepts(grammar, str(number)) == (check(number, schema) is None), number


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_xgrammar_reads_the_same_grammar(dialect: Dialect) -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed; llguidance reads the grammar above")
    accepts_text = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string
    grammar, rng = xgrammar.Grammar.from_ebnf(dialect.grammar(TOOLS)), random.Random(7)
    for _ in range(200):
        tool = rng.choice(TOOLS)
        assert accepts_text(grammar, dialect.render_call(ToolCall(tool.name, valid_arguments(rng, tool))))
    assert not accepts_text(grammar, dialect.render_call(ToolCall("web", {"q": "x", "k": 11})))


ANSWER = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}},
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_turn_has_the_form_that_is_asked_for(dialect: Dialect) -> None:
    web, code = ToolCall("web", {"q": "x", "k": 1}), ToolCall("code", {"code_command": "ls"})
    one, solution = dialect.render_call(web), dialect.render_solution("42")
    must = matcher(dialect.grammar(TOOLS, Form(must_call=True)))
    assert accepts(must, one)
    assert accepts(must, f"<think>so</think>{one}")
    assert not accepts(must, solution)
    with pytest.raises(ValueError, match="no tool to call"):
        dialect.grammar([], Form(must_call=True))
    if dialect.calls_per_turn != 1:
        two = dialect.render_calls([web, code])
        assert accepts(must, two)
        single = matcher(dialect.grammar(TOOLS, Form(must_call=True, one_call=True)))
        assert accepts(single, one)
        assert not accepts(single, two)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_an_answer_with_a_schema_is_json_in_which_no_marker_can_stand(dialect: Dialect) -> None:
    grammar, rng = matcher(dialect.grammar([], Form(answer=ANSWER))), random.Random(3)
    assert accepts(grammar, dialect.render_solution('{"a":"x","b":[[],[[]]]}'))
    assert accepts(grammar, dialect.render_solution('{"a":"\\u003c"}'))
    for wrong in ('{"a":"<"}', '{"b":null}', '{"a":"x","b":7}', "words"):
        assert not accepts(grammar, dialect.render_solution(wrong)), wrong
    done = [text for _ in range(20) if (text := sample(grammar, rng, dialect.answer_open + '{"a":"')) is not None]
    assert done
    for text in done:
        parser = Parser(dialect.name, [])
        parser.feed(text)
        parser.close()
        assert (
            check(json.loads(parser.solution or ""), {**ANSWER, "properties": {"a": {"type": "string"}, "b": {}}})
            is None
        )


def test_behind_an_opened_answer_stands_its_rest() -> None:
    grammar = matcher(get_dialect("tags").grammar(TOOLS, Form(opened=True)))
    assert accepts(grammar, "42</solution>")
    assert not accepts(grammar, "<solution>42</solution>")
    assert not accepts(grammar, '42</solution><web>{"type":"web","q":"x","k":1}</web>')


def test_loose_objects_hold_any_number_of_keys() -> None:
    text = '<execute>[{"name":"f","args":{"a":{"b":1,"c":[[[[{"d":2}]]]]},"e":null}}]</execute>'
    assert accepts(matcher(get_dialect("execute").grammar(None, Form(loose=True))), text)
    assert not accepts(matcher(get_dialect("execute").grammar(None)), text)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (BOUNDED := {"type": "string", "maxLength": 3}, None),
        ({"type": "string", "pattern": "x"}, "pattern"),
        ({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}}, "properties.a.items"),
        ({"type": "array", "items": {"type": "string", "format": "date"}}, "items.format"),
        ({"anyOf": [{"type": "null"}, {"oneOf": []}]}, "anyOf.1.oneOf"),
        ({"anyOf": [BOUNDED], "type": "string"}, "anyOf"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}, "$defs.a.not"),
        ({"type": "string", "maxLength": 1 << 20}, "maxLength"),
        (ANSWER, None),
        (FORM.input_schema, None),
    ],
)
def test_a_word_that_no_text_is_held_to_is_named(schema: Any, word: str | None) -> None:
    assert unenforced(schema) == word
