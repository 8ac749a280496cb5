"""System prompts, written from the tool declarations alone: a declared tool is a documented tool.

Invariant: every call that a prompt shows is valid for the validator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.values import Tool, ToolCall

_TAGS_CALLS = """\
To use a tool, write one call, exactly in this form, then stop:

{calls}

Rules for a call:
- It is one JSON object in double quotes with exactly these keys and no other.
- Inside a string write \\" for a quote and \\n for a line break.
- One call a turn. Stop after its closing tag and wait: the result comes as
  <tool_result>[{first}-result] {{...}}</tool_result> or, when it failed, as
  <tool_result>[{first}-error] {{...}}</tool_result>. Then read the cause, correct it and call again.
- Never write <tool_result> yourself, and no call inside <think> or <solution>: it is not run.

"""
_TAGS = """\
You solve the user's task. First you may think: <think>your reasoning</think>

{calls}\
When you know the answer, write it once, with nothing after it:

<solution>the answer</solution>
"""


def tags_prompt(tools: Sequence[Tool]) -> str:
    """The system prompt of the ``tags`` dialect."""
    if not tools:
        return _TAGS.format(calls="")
    calls = "\n\n".join(_tags_tool(tool) for tool in tools)
    return _TAGS.format(calls=_TAGS_CALLS.format(calls=calls, first=tools[0].name))


def _tags_tool(tool: Tool) -> str:
    example = ToolCall(tool.name, tool.example).body().decode()
    return f"<{tool.name}>{example}</{tool.name}>\n{tool.description} {_describe_arguments(tool)}"


def _describe_arguments(tool: Tool) -> str:
    """The arguments of a tool in one readable line, from its schema."""
    required = tool.input_schema.get("required", ())
    parts = [
        f"{name}: {_describe(schema)}{'' if name in required else ', optional'}"
        for name, schema in tool.properties.items()
    ]
    return f"({'; '.join(parts)})" if parts else "(no arguments)"


def _describe(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any value")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if schema.get("minLength", 0) > 0:
        text = f"non-empty {text}"
    if "minimum" in schema and "maximum" in schema:
        text += f" from {schema['minimum']} to {schema['maximum']}"
    elif "minimum" in schema:
        text += f", at least {schema['minimum']}"
    elif "maximum" in schema:
        text += f", at most {schema['maximum']}"
    return text
