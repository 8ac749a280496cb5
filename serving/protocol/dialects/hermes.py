"""The ``hermes`` dialect: think, any number of ``<tool_call>`` blocks among text, ``<tool_response>``.

A call is a JSON object or, as Qwen3-Coder writes it, function and parameter tags. Invariants: the calls of a turn run
when it ends, in the order in which they were written; a refused call ends the turn, and what was accepted before it
still runs; the text of a turn without a call is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.dialects.base import Dialect
from callwright.serving.protocol.function_tags import PARAMETER, is_function, validate_function
from callwright.serving.protocol.grammar import FREE, Form, Rules
from callwright.serving.protocol.prompts import hermes_prompt
from callwright.serving.protocol.rendering import bounded_json, marker_safe_json
from callwright.serving.protocol.validation import CallKeys, validate_named
from callwright.serving.protocol.values import Rejection, ResultStatus, Tool, ToolCall

KEYS = CallKeys("name", "arguments")

_BLOCKS = (
    Block("think", Role.THINK, "<think>", "</think>"),
    Block("tool_call", Role.CALL, "<tool_call>", "</tool_call>", raw=PARAMETER),
    Block("tool_response", Role.RESULT, "<tool_response>", "</tool_response>"),
)


class Hermes(Dialect):
    """``<think> <tool_call>{"name", "arguments"} <tool_response>{"name", "status", "content"}``."""

    name = "hermes"
    default_tools = None
    call_blocks_per_turn = None
    result_role = "user"
    result_open = "<tool_response>\n"
    result_close = "\n</tool_response>"

    def blocks(self, tools: Sequence[Tool] | None) -> tuple[Block, ...]:
        return _BLOCKS

    def read_calls(self, block: Block, body: str, tools: Sequence[Tool] | None) -> Sequence[ToolCall] | Rejection:
        return validate_function(body, tools) if is_function(body) else validate_named(body, KEYS, tools)

    def call_schema(self, tool: str | None, tools: Sequence[Tool] | None) -> Mapping[str, Any] | None:
        return KEYS.schema(tool, tools)

    def system_prompt(self, tools: Sequence[Tool]) -> str:
        return hermes_prompt(tools, self.render_calls)

    def grammar(self, tools: Sequence[Tool] | None, form: Form = FREE) -> str:
        rules = Rules(form)
        answer = rules.answered("answer")
        if tools is not None and not tools:
            return rules.turn(None, answer)
        call = rf'"<tool_call>" "\n"? {rules.named_call(KEYS.name, KEYS.arguments, tools)} "\n"? "</tool_call>"'
        text = r'"\n"?' if form.must_call else "text"  # what must call has nothing else to say
        return rules.turn(f"{text} {call}" if form.one_call else f"{text} ({call} {text})+", answer)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        bodies = [marker_safe_json({KEYS.name: call.name, KEYS.arguments: call.arguments}) for call in calls]
        return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)

    def render_fields(self, tool: str | None, error: bool, fields: Mapping[str, Any], max_chars: int) -> str:
        status = ResultStatus.FAILURE if error else ResultStatus.SUCCESS
        return bounded_json({"name": tool, "status": status, "content": fields}, max_chars)
