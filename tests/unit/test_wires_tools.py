"""Tools, choices and names on every wire: the vendors' types take them, and they come back equal but for losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vendor_types import check_choice, check_tools

from callwright.serving.protocol.tools import AZURE, DEFAULT_TOOLS, WEB
from callwright.serving.wires import (
    CapabilityError,
    ChoiceMode,
    NameMap,
    Tool,
    ToolCall,
    ToolChoice,
    WireError,
    WireFormat,
    choice_from,
    messages_from,
    messages_to,
    tools_from,
    tools_to,
)
from callwright.serving.wires.names import RULES

pytestmark = pytest.mark.unit

FORCING = ("openai", "responses", "anthropic", "gemini")

# What of the shipped azure tool (an example, bounds in its schema, stateful) has no place on the wire.
TOOL_LOSSES = {
    "openai": {"tool.example", "tool.stateful"},
    "responses": {"tool.example", "tool.stateful"},
    "anthropic": {"tool.stateful"},
    "gemini": {"tool.example", "tool.stateful"},
    "ollama": {"tool.example", "tool.stateful", "tool.schema"},
    "hermes": {"tool.example", "tool.stateful"},
}


@pytest.mark.parametrize("fmt", WireFormat)
def test_the_shipped_tools_there_and_back(fmt: str) -> None:
    fields, losses = tools_to(fmt, DEFAULT_TOOLS)
    check_tools(fmt, fields)
    assert {str(loss.kind) for loss in losses} == TOOL_LOSSES[fmt]
    kept = "tool.example" not in TOOL_LOSSES[fmt]
    back = [replace(tool, stateful=False, example=tool.example if kept else {}) for tool in DEFAULT_TOOLS]
    assert tools_from(fmt, fields) == back


@pytest.mark.parametrize("fmt", WireFormat)
def test_one_tool_is_an_element_of_the_list(fmt: str) -> None:
    payload, losses = AZURE.to(fmt)
    assert {str(loss.kind) for loss in losses} == TOOL_LOSSES[fmt]
    assert tools_from(fmt, {"tools": [payload]}) == [Tool.from_(fmt, payload)]
    assert Tool.from_(fmt, payload).input_schema == AZURE.input_schema


@pytest.mark.parametrize("fmt", WireFormat)
def test_strict_is_carried_or_noted(fmt: str) -> None:
    tool = replace(WEB, strict=True, example={})
    fields, losses = tools_to(fmt, [tool])
    check_tools(fmt, fields)
    carried = fmt in ("openai", "responses", "anthropic")
    assert ("tool.strict" in {str(loss.kind) for loss in losses}) is not carried
    assert tools_from(fmt, fields)[0].strict is carried


@pytest.mark.parametrize("fmt", WireFormat)
@pytest.mark.parametrize("schema", [None, {"type": "object", "properties": {}}])
def test_a_missing_schema_is_the_empty_one(fmt: str, schema: Any) -> None:
    key = {"anthropic": "input_schema", "gemini": "parameters_json_schema"}.get(fmt, "parameters")
    data: Any = {"name": "now", **({} if schema is None else {key: schema})}
    data = {"type": "function", "function": data} if fmt in ("openai", "ollama", "hermes") else data
    assert Tool.from_(fmt, data) == Tool("now", "", {"type": "object", "properties": {}})


@pytest.mark.parametrize("fmt", WireFormat)
def test_a_tool_without_a_name_is_an_error(fmt: str) -> None:
    data: Any = {"description": "?"}
    data = {"type": "function", "function": data} if fmt in ("openai", "ollama", "hermes") else data
    with pytest.raises(WireError):
        Tool.from_(fmt, {"functionDeclarations": [data]} if fmt == "gemini" else data)


@pytest.mark.parametrize(
    ("fmt", "data"),
    [
        ("openai", {"type": "custom", "custom": {"name": "f"}}),
        ("responses", {"type": "web_search"}),
        ("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
        ("gemini", {"googleSearch": {}}),
    ],
)
def test_a_tool_that_the_vendor_runs_is_not_taken_for_ours(fmt: str, data: Any) -> None:
    with pytest.raises(WireError, match="only functions"):
        tools_from(fmt, {"tools": [data]})


def test_geminis_older_parameters_are_read_as_json_schema() -> None:
    parameters = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "maxLength": "9"},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER"}},
        },
        "required": ["type"],
    }
    tool = Tool.from_("gemini", {"function_declarations": [{"name": "f", "parameters": parameters}]})
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "maxLength": 9},
            "list": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["type"],
    }


# The value of the field that says each choice.
CHOICES: dict[str, dict[str, Any]] = {
    "openai": {
        "auto": "auto",
        "any": "required",
        "none": "none",
        "named": {"type": "function", "function": {"name": "f"}},
    },
    "responses": {"auto": "auto", "any": "required", "none": "none", "named": {"type": "function", "name": "f"}},
    "anthropic": {
        "auto": {"type": "auto"},
        "any": {"type": "any"},
        "none": {"type": "none"},
        "named": {"type": "tool", "name": "f"},
    },
    "gemini": {
        "auto": {"mode": "AUTO"},
        "any": {"mode": "ANY"},
        "none": {"mode": "NONE"},
        "named": {"mode": "ANY", "allowedFunctionNames": ["f"]},
    },
}


def choice_of(word: str) -> ToolChoice:
    return ToolChoice(ChoiceMode(word), ("f",) if word == "named" else ())


@pytest.mark.parametrize("fmt", FORCING)
@pytest.mark.parametrize("word", ["auto", "any", "none", "named"])
def test_choices_there_and_back(fmt: str, word: str) -> None:
    fields, losses = choice_of(word).to(fmt)
    check_choice(fmt, fields)
    value = fields["toolConfig"]["functionCallingConfig"] if fmt == "gemini" else fields["tool_choice"]
    assert value == CHOICES[fmt][word]
    assert not losses
    assert ToolChoice.from_(fmt, fields) == choice_of(word)


@pytest.mark.parametrize("fmt", ["ollama", "hermes"])
def test_wires_that_cannot_force_say_so(fmt: str) -> None:
    assert ToolChoice().to(fmt) == ({}, ())
    assert ToolChoice(ChoiceMode.NONE).to(fmt) == ({"tools": []}, ())
    for choice in (ToolChoice(ChoiceMode.ANY), choice_of("named"), ToolChoice(names=("f",))):
        with pytest.raises(CapabilityError):
            choice.to(fmt)


def test_a_part_of_the_tools() -> None:
    some = ToolChoice(ChoiceMode.AUTO, ("f", "g"))
    for fmt in ("openai", "responses", "gemini"):
        fields, losses = some.to(fmt)
        check_choice(fmt, fields)
        assert not losses
        assert ToolChoice.from_(fmt, fields) == some
    with pytest.raises(CapabilityError):
        some.to("anthropic")
    assert ToolChoice.from_("openai", ToolChoice(ChoiceMode.ANY, ("f",)).to("openai").payload).mode is ChoiceMode.ANY


def test_anthropic_cannot_force_while_thinking_nor_on_models_that_always_think() -> None:
    for word in ("any", "named"):
        with pytest.raises(CapabilityError, match="thinking"):
            choice_of(word).to("anthropic", thinking=True)
        with pytest.raises(CapabilityError, match="claude-opus-5-5"):
            choice_of(word).to("anthropic", model="claude-opus-5-5")
        assert choice_of(word).to("anthropic", model="claude-opus-5").payload
    assert choice_of("auto").to("anthropic", model="claude-opus-5-5", thinking=True).payload


@pytest.mark.parametrize("fmt", WireFormat)
@pytest.mark.parametrize("parallel", [True, False])
def test_the_parallel_switch_is_carried_or_noted(fmt: str, parallel: bool) -> None:
    fields, losses = ToolChoice(parallel=parallel).to(fmt)
    carried = fmt in ("openai", "responses", "anthropic")
    assert [str(loss.kind) for loss in losses] == ([] if carried else ["choice.parallel"])
    assert ToolChoice.from_(fmt, fields).parallel is (parallel if carried else None)
    if fmt == "anthropic":
        assert fields["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": not parallel}
        assert ToolChoice(ChoiceMode.NONE, parallel=parallel).to(fmt).losses


@pytest.mark.parametrize(
    "value",
    [
        *("auto", "none", "required", "any"),
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "name": "f"},
        {"type": "tool", "name": "f"},
    ],
)
def test_every_vendors_spelling_is_read(value: Any) -> None:
    word = value if isinstance(value, str) else "named"
    assert choice_from("openai", value) == choice_of({"required": "any"}.get(word, word))


@pytest.mark.parametrize("value", ["always", {"type": "tool"}, {"type": "function", "function": {}}, 7, {"type": "x"}])
def test_what_is_no_choice_is_an_error_and_not_auto(value: Any) -> None:
    with pytest.raises(WireError):
        choice_from("openai", {"tool_choice": value})


@pytest.mark.parametrize("names", [(), ("",), ("f", "g")])
def test_a_named_choice_names_one_tool(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        ToolChoice(ChoiceMode.NAMED, names)


def test_an_unknown_format_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="openai, responses, anthropic, gemini, ollama, hermes"):
        WEB.to("openrouter")


# Names

NAMES = st.text(min_size=1, max_size=80) | st.sampled_from(["a.b", "a_b", "a b", "1up", "ä", "x" * 65, "x" * 64 + "y"])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WireFormat), st.lists(NAMES, max_size=12))
def test_names_are_allowed_distinct_and_reversible(fmt: WireFormat, names: list[str]) -> None:
    declared, later = names[::2], names[1::2]
    book = NameMap(fmt, declared)
    wire = {name: book.to_wire(name) for name in [*declared, *later]}
    assert len(set(wire.values())) == len(wire)
    for name, seen in wire.items():
        assert RULES[fmt].fullmatch(seen)
        assert book.from_wire(seen) == name
        assert book.to_wire(name) == seen
    for name in declared:
        if RULES[fmt].fullmatch(name):
            assert wire[name] == name


def test_a_name_that_looks_like_a_changed_one_does_not_collide() -> None:
    changed = NameMap(WireFormat.OPENAI).to_wire("a.b")
    declared, late = NameMap(WireFormat.OPENAI, ["a.b", changed]), NameMap(WireFormat.OPENAI, ["a.b"])
    assert declared.to_wire(changed) == changed
    for book in (declared, late):
        wire = {name: book.to_wire(name) for name in ("a.b", changed)}
        assert len(set(wire.values())) == 2
        assert {name: book.from_wire(seen) for name, seen in wire.items()} == {name: name for name in wire}


def test_one_map_serves_the_tools_the_choice_the_calls_and_the_results() -> None:
    tool = Tool("files.read", "", {"type": "object", "properties": {}})
    book = NameMap(WireFormat.ANTHROPIC, [tool.name])
    seen = book.to_wire(tool.name)
    fields, (loss,) = tools_to("anthropic", [tool], names=book)
    assert (loss.before, loss.after) == (tool.name, seen)
    assert fields["tools"][0]["name"] == seen
    choice = ToolChoice(ChoiceMode.NAMED, (tool.name,)).to("anthropic", names=book).payload
    assert choice["tool_choice"]["name"] == seen
    reply = {"content": [{"type": "tool_use", "id": "t", "name": seen, "input": {}}]}
    (call,) = ToolCall.extract("anthropic", reply, tools=[tool], names=book)
    assert isinstance(call, ToolCall)
    assert call.name == tool.name
    assert call.to("anthropic", names=book).payload["name"] == seen
    history = [{"role": "assistant", "content": reply["content"]}]
    messages = messages_from("anthropic", {"messages": history}, names=book)
    assert messages[0].calls[0].name == tool.name  # type: ignore[union-attr]
    assert messages_to("anthropic", messages, names=book).payload["messages"] == history


def test_a_map_belongs_to_one_wire() -> None:
    with pytest.raises(ValueError, match="openai"):
        WEB.to("gemini", names=NameMap(WireFormat.OPENAI))
