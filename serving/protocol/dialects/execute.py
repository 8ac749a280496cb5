"""The ``execute`` dialect: think, one block with a JSON array of calls, results.

Invariants: the calls of a block run at once and their results come as one array in call order; the block is a hard
stop, and what is written after it is discarded and counted; one bad call refuses the whole block; the text of a turn
without a block is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.dialects.base import Dialect, Piece
from callwright.serving.protocol.grammar import FREE, Form, Rules
from callwright.serving.protocol.prompts import execute_prompt
from callwright.serving.protocol.rendering import bounded_json, marker_safe_json
from callwright.serving.protocol.validation import CallKeys, validate_named
from callwright.serving.protocol.values import Rejection, ResultStatus, Tool, ToolCall, compact_json

KEYS = CallKeys("name", "args")

_BLOCKS = (
    Block("think", Role.THINK, "<think>", "</think>"),
    Block("execute", Role.CALL, "<execute>", "</execute>"),
    Block("results", Role.RESULT, "<results>", "</results>"),
)


class Execute(Dialect):
    """``<think> <execute>[{"name", "args"}] <results>[{"tool", "status", "content"}]``."""

    name = "execute"
    default_tools = None
    call_blocks_per_turn = 1
    result_role = "user"
    result_open = "<results>"
    result_close = "</results>"

    def blocks(self, tools: Sequence[Tool] | None) -> tuple[Block, ...]:
        return _BLOCKS

    def read_calls(self, block: Block, body: str, tools: Sequence[Tool] | None) -> Sequence[ToolCall] | Rejection:
        return validate_named(body, KEYS, tools, array=True)

    def call_schema(self, tool: str | None, tools: Sequence[Tool] | None) -> Mapping[str, Any] | None:
        return {"type": "array", "items": KEYS.schema(tool, tools)}

    def system_prompt(self, tools: Sequence[Tool]) -> str:
        return execute_prompt(tools, self.render_calls)

    def grammar(self, tools: Sequence[Tool] | None, form: Form = FREE) -> str:
        rules = Rules(form)
        answer = rules.answered("answer")
        if tools is not None and not tools:
            return rules.turn(None, answer)
        call = rules.named_call(KEYS.name, KEYS.arguments, tools)
        calls = call if form.one_call else f'{call} ("," " "? {call})*'
        return rules.turn(f'"<execute>[" {calls if form.must_call else f"({calls})?"} "]</execute>"', answer)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        body = [{KEYS.name: call.name, KEYS.arguments: call.arguments} for call in calls]
        return f"<execute>{marker_safe_json(body)}</execute>"

    def render_fields(self, tool: str | None, error: bool, fields: Mapping[str, Any], max_chars: int) -> str:
        status = ResultStatus.FAILURE if error else ResultStatus.SUCCESS
        return bounded_json({"tool": tool, "status": status, "content": compact_json(fields)}, max_chars)

    def frame_results(self, texts: Sequence[str]) -> list[Piece]:
        return [Piece(self.result_open, f"[{','.join(texts)}]", self.result_close)]
