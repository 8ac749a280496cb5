"""The ``tags`` dialect: think, one tag a tool with the exact queue body in it, solution, tool_result.

Invariants: one call a turn, then the model waits for its ``<tool_result>``; the tag and the body's ``type`` name the
same tool; the solution ends the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.dialects.base import Dialect
from callwright.serving.protocol.prompts import tags_prompt
from callwright.serving.protocol.rendering import (
    MAX_CHARS,
    MIN_CHARS,
    Rendered,
    bounded_json,
    record_of,
    rejection_fields,
    shown_fields,
)
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.validation import validate
from callwright.serving.protocol.values import Rejection, Tool, ToolCall

_FIXED = {"think": Role.THINK, "solution": Role.ANSWER, "tool_result": Role.RESULT}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Tags(Dialect):
    """``<think> <web> <code> <azure> <solution> <tool_result>``, the tool tags following from the tools."""

    name = "tags"
    default_tools = DEFAULT_TOOLS
    result_open = "<tool_result>"
    result_close = "</tool_result>\n"
    call_blocks_per_turn = 1

    def blocks(self, tools: Sequence[Tool]) -> tuple[Block, ...]:
        names = [tool.name for tool in tools]
        for name in names:
            if not _NAME.fullmatch(name) or name in _FIXED or names.count(name) > 1:
                raise ValueError(
                    f"a tool cannot have the tag {name!r}: a name like one of {', '.join(_FIXED)}, used "
                    "twice, or not letters, digits, '_' and '-'"
                )
        roles = {**_FIXED, **dict.fromkeys(names, Role.CALL)}
        return tuple(Block(name, role, f"<{name}>", f"</{name}>") for name, role in roles.items())

    def read_calls(self, block: Block, body: str, tools: Sequence[Tool]) -> Sequence[ToolCall] | Rejection:
        verdict = validate(body, tools, expected=block.name)
        return verdict if isinstance(verdict, Rejection) else [verdict]

    def system_prompt(self, tools: Sequence[Tool]) -> str:
        return tags_prompt(tools)

    def render_result(self, record: bytes, tool: str | None = None, max_chars: int = MAX_CHARS) -> Rendered:
        fields = record_of(record)
        if fields is None:
            return _rendered(tool, True, {"text": record.decode(errors="replace")}, max_chars)
        named = fields.get("type")
        name = named if isinstance(named, str) and _NAME.fullmatch(named) else tool
        return _rendered(name, fields.get("status") != "ok", shown_fields(fields), max_chars)

    def render_rejection(self, rejection: Rejection, tools: Sequence[Tool], max_chars: int = MAX_CHARS) -> Rendered:
        return _rendered(rejection.tool, True, rejection_fields(rejection, tools), max_chars)


def _rendered(tool: str | None, error: bool, fields: dict[str, Any], max_chars: int) -> Rendered:
    kind = "error" if error else "result"
    if max_chars < MIN_CHARS:
        raise ValueError(f"a result needs at least {MIN_CHARS} characters")
    prefix = f"[{tool}-{kind}] " if tool else f"[{kind}] "
    return Rendered(prefix + bounded_json(fields, max_chars - len(prefix)), error)
