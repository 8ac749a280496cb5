"""The ``tags`` dialect: think, one tag a tool with the exact queue body in it, solution, tool_result.

Invariants: one call a turn, then the model waits for its ``<tool_result>``; the tag and the body's ``type`` name the
same tool; the solution ends the conversation. Beside a shipped tool the tags of all shipped ones are calls, and those
that are not declared are refused; among a client's own tools alone, ``<code>`` is text like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.dialects.base import Dialect
from callwright.serving.protocol.grammar import FREE, Form, Rules
from callwright.serving.protocol.grammar_terminals import literal
from callwright.serving.protocol.prompts import tags_prompt
from callwright.serving.protocol.rendering import PLAIN_NAME, bounded_json
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.validation import validate
from callwright.serving.protocol.values import Rejection, Tool, ToolCall

_FIXED = {"think": Role.THINK, "solution": Role.ANSWER, "tool_result": Role.RESULT}


class Tags(Dialect):
    """``<think> <web> <code> <azure> <solution> <tool_result>``, the tool tags following from the tools."""

    name = "tags"
    default_tools = DEFAULT_TOOLS
    calls_per_turn = 1
    call_blocks_per_turn = 1
    answer_open = "<solution>"
    answer_close = "</solution>"
    result_open = "<tool_result>"
    result_close = "</tool_result>\n"

    def blocks(self, tools: Sequence[Tool] | None) -> tuple[Block, ...]:
        names = [tool.name for tool in self._known(tools)]
        for name in names:
            if not _may_be_tag(name) or names.count(name) > 1:
                raise ValueError(
                    f"a tool cannot have the tag {name!r}: a name like one of {', '.join(_FIXED)}, used "
                    "twice, or not letters, digits, '_' and '-'"
                )
        fixed = [Block(name, role, f"<{name}>", f"</{name}>") for name, role in _FIXED.items()]
        shipped = [tool.name for tool in self.default_tools]
        if not set(names).isdisjoint(shipped):
            names += [name for name in shipped if name not in names]
        return (*fixed, *(Block(name, Role.CALL, f"<{name}>", f"</{name}>", tool=name) for name in names))

    def read_calls(self, block: Block, body: str, tools: Sequence[Tool] | None) -> Sequence[ToolCall] | Rejection:
        verdict = validate(body, tools, expected=block.tool)
        return verdict if isinstance(verdict, Rejection) else [verdict]

    def call_schema(self, tool: str | None, tools: Sequence[Tool] | None) -> Mapping[str, Any] | None:
        known = {known.name: known for known in self._known(tools)}
        if tool in known:
            return known[tool].body_schema
        kind = {"type": {"enum": list(known)}}
        return {"type": "object", "properties": kind, "required": ["type"]} if known else None

    def system_prompt(self, tools: Sequence[Tool]) -> str:
        return tags_prompt(tools)

    def grammar(self, tools: Sequence[Tool] | None, form: Form = FREE) -> str:
        rules = Rules(form)
        for tool in self._known(tools):
            if "$ref" in tool.input_schema or "anyOf" in tool.input_schema:
                raise ValueError(f"the arguments of {tool.name} must be keys, for the body's type stands beside them")
        bodies = {tool.name: rules.value(tool.body_schema, tool.input_schema) for tool in self._known(tools)}
        calls = [f'"<{name}>" {body} "</{name}>"' for name, body in bodies.items()]
        opener = "" if form.opened else f"{literal(self.answer_open)} "
        answer = f"{opener}{rules.answered('text')} {literal(self.answer_close)}"
        return rules.turn(" | ".join(calls) or None, answer)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        if len(calls) != 1 or not _may_be_tag(calls[0].name):
            raise ValueError(f"this dialect has no words for the calls of {', '.join(call.name for call in calls)}")
        (call,) = calls
        return f"<{call.name}>{call.body().decode()}</{call.name}>"

    def render_fields(self, tool: str | None, error: bool, fields: Mapping[str, Any], max_chars: int) -> str:
        kind = "error" if error else "result"
        prefix = f"[{tool}-{kind}] " if tool and PLAIN_NAME.fullmatch(tool) else f"[{kind}] "
        return prefix + bounded_json(fields, max_chars - len(prefix))

    def _known(self, tools: Sequence[Tool] | None) -> Sequence[Tool]:
        return self.default_tools if tools is None else tools


def _may_be_tag(name: str) -> bool:
    return PLAIN_NAME.fullmatch(name) is not None and name not in _FIXED
