"""What a request asks to be certain of, as the grammar that makes it so: strict tools, forced calls, JSON answers.

Invariant: what is promised is kept by decoding, or refused before a token is made; a schema is never weakened where
the client asked to be held to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.gateway.intake import Ask
from callwright.serving.gateway.reading import judged
from callwright.serving.protocol.dialects import Dialect
from callwright.serving.protocol.grammar import Form
from callwright.serving.protocol.grammar_values import unenforced
from callwright.serving.protocol.values import ChoiceMode, Tool

_NO_SCHEMA = (ValueError, TypeError, AttributeError)  # what a schema that is none leads to


def promised(ask: Ask, dialect: Dialect, *, always: bool) -> str | None:
    """The grammar of the reply; None where any text keeps what was asked, unless it is ``always`` held to the
    dialect. Raises ApiError."""
    if not (always or ask.forced or ask.answer is not None or any(tool.strict for tool in ask.tools)):
        return None
    if ask.answer is not None:
        _require_enforced(ask.answer, "response format")
    for tool in ask.tools:
        if tool.strict:
            _require_enforced(tool.input_schema, f"tools: {tool.name[:64]} is strict")
    named = ask.choice.names if ask.choice.mode is ChoiceMode.NAMED else ()
    tools = [_held(tool, dialect) for tool in ask.tools if not named or tool.name in named]
    form = Form(must_call=ask.forced, one_call=ask.one_call, answer=ask.answer, loose=True)
    try:
        return dialect.grammar(tools, form)
    except _NO_SCHEMA as error:
        raise ApiError(Problem.INVALID, f"no reply can keep what is asked: {error}") from None


def _require_enforced(schema: Mapping[str, Any], what: str) -> None:
    try:
        word = unenforced(schema)
    except _NO_SCHEMA as error:
        raise ApiError(Problem.INVALID, f"{what}: a schema that cannot be read: {error}") from None
    if word is not None:
        message = f"{what}: this server cannot hold a model to {word[:100]} of its schema"
        raise ApiError(Problem.INVALID, message, code="unsupported_parameter")


def _held(tool: Tool, dialect: Dialect) -> Tool:
    """The tool as a call is held to it. One that is not strict is held to what can be told of its schema."""
    if tool.strict:
        return tool
    try:
        dialect.grammar([tool], Form(must_call=True, loose=True))
    except _NO_SCHEMA:
        return judged(tool)
    return tool
