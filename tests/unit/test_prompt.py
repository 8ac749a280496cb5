"""The system prompt follows from the declarations, and every call it shows is one that the parser accepts."""

from __future__ import annotations

import re

import pytest

from callwright.serving.protocol import Dialect, Parser, Tool, ToolCall, get_dialect, validate
from callwright.serving.protocol.tools import CODE, DEFAULT_TOOLS

pytestmark = pytest.mark.unit

TAGS = get_dialect("tags")
NAMED = [get_dialect("execute"), get_dialect("hermes")]

CLOCK = Tool(
    name="clock",
    description="Tell the time.",
    input_schema={
        "type": "object",
        "properties": {
            "zone": {"enum": ["UTC", "CET"]},
            "digits": {"type": "integer", "minimum": 0},
            "label": {"type": ["string", "null"]},
        },
        "required": ["zone"],
        "additionalProperties": False,
    },
    example={"zone": "UTC"},
)


def test_every_tool_is_shown_with_an_example_that_is_accepted() -> None:
    prompt = TAGS.system_prompt(DEFAULT_TOOLS)
    for tool in DEFAULT_TOOLS:
        found = re.search(f"<{tool.name}>(.*?)</{tool.name}>", prompt)
        assert found
        assert tool.description in prompt
        call = validate(found[1], expected=tool.name)
        assert isinstance(call, ToolCall)
        assert call.arguments == tool.example
        parser = Parser("tags")
        parser.feed(found[0])
        assert [parsed.name for parsed in parser.calls] == [tool.name]


def test_the_prompt_names_every_marker_and_fits_a_screen() -> None:
    prompt = TAGS.system_prompt(DEFAULT_TOOLS)
    assert all(marker in prompt for marker in TAGS.markers(DEFAULT_TOOLS))
    assert len(prompt.splitlines()) <= 30
    assert max(map(len, prompt.splitlines())) <= 130


def test_only_the_given_tools_are_in_the_prompt() -> None:
    prompt = TAGS.system_prompt([CODE])
    assert "<code>" in prompt
    assert "web" not in prompt
    assert "azure" not in prompt


def test_arguments_are_described_from_the_schema() -> None:
    prompt = TAGS.system_prompt([CLOCK])
    assert '<clock>{"type":"clock","zone":"UTC"}</clock>' in prompt
    described = "(zone: one of UTC, CET; digits: integer, at least 0, optional; label: string or null, optional)"
    assert described in prompt
    assert "k: integer from 1 to 10" in TAGS.system_prompt(DEFAULT_TOOLS)


def test_without_tools_there_is_no_word_of_calls() -> None:
    prompt = TAGS.system_prompt([])
    assert "<solution>" in prompt
    assert "call" not in prompt
    assert "tool" not in prompt


@pytest.mark.parametrize("dialect", NAMED, ids=lambda dialect: dialect.name)
def test_named_calls_are_shown_as_they_are_accepted(dialect: Dialect) -> None:
    prompt = dialect.system_prompt(DEFAULT_TOOLS)
    example = dialect.render_calls([ToolCall(tool.name, tool.example) for tool in DEFAULT_TOOLS[:2]])
    assert example in prompt
    parser = Parser(dialect.name, DEFAULT_TOOLS)
    parser.feed(example)
    parser.close()
    assert [(call.name, call.arguments) for call in parser.calls] == [(t.name, t.example) for t in DEFAULT_TOOLS[:2]]
    for tool in DEFAULT_TOOLS:
        assert f"{tool.name} (" in prompt
        assert tool.description in prompt
    assert "k: integer from 1 to 10" in prompt
    assert all(block.opener in prompt for block in dialect.blocks(DEFAULT_TOOLS))
    assert len(prompt.splitlines()) <= 35
    assert max(map(len, prompt.splitlines())) <= 150


@pytest.mark.parametrize("dialect", NAMED, ids=lambda dialect: dialect.name)
def test_named_dialects_without_tools_have_no_word_of_calls(dialect: Dialect) -> None:
    prompt = dialect.system_prompt([])
    assert "call" not in prompt
    assert "tool" not in prompt
    assert "plain text" in prompt
