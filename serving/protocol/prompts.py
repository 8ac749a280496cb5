"""System prompts, written from the tool declarations alone: a declared tool is a documented tool.

Invariant: every call that a prompt shows is valid for the validator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
_NAMED = """\
You solve the user's task. First you may think: <think>your reasoning</think>

{calls}\
When you know the answer, write it as plain text without {block}: that ends the conversation.
"""
_EXECUTE_CALLS = """\
To use tools, write one block with a JSON array of calls, then stop:

{example}

The tools, with their arguments:

{tools}

Rules for a block:
- Every call is one JSON object with exactly the keys "name" and "args", in double quotes.
- Inside a string write \\" for a quote and \\n for a line break.
- The calls of a block run at once, so none can use the result of another. One bad call stops the whole block.
- Stop after </execute> and wait: the results come in the order of the calls, as
  <results>[{{"tool":...,"status":"success" or "failure","content":...}}]</results>. After a failure read the cause,
  correct the call and write it again.
- Never write <results> yourself, and no block inside <think>: it is not run.

"""
_HERMES_CALLS = """\
To use a tool, write a call in this form, several if they do not need each other, and then end your turn:

{example}

The tools, with their arguments:

{tools}

Rules for a call:
- It is one JSON object with exactly the keys "name" and "arguments", in double quotes.
- Inside a string write \\" for a quote and \\n for a line break.
- Each result comes as <tool_response>{{"name":...,"status":"success" or "failure","content":...}}</tool_response>.
  After a failure read the cause, correct the call and write it again.
- Never write <tool_response> yourself, and no call inside <think>: it is not run.

"""

RenderCalls = Callable[[Sequence[ToolCall]], str]
Frame = Callable[[str, str, str], str]


def tags_prompt(tools: Sequence[Tool]) -> str:
    """The system prompt of the ``tags`` dialect."""
    if not tools:
        return _TAGS.format(calls="")
    return tags_frame("", "\n\n".join(_tags_tool(tool) for tool in tools), tools[0].name)


def execute_prompt(tools: Sequence[Tool], render: RenderCalls) -> str:
    """The system prompt of the ``execute`` dialect; ``render`` writes the example."""
    return _named_prompt(execute_frame, tools, render)


def hermes_prompt(tools: Sequence[Tool], render: RenderCalls) -> str:
    """The system prompt of the ``hermes`` dialect; ``render`` writes the example."""
    return _named_prompt(hermes_frame, tools, render)


def tags_frame(example: str, tools: str, first: str) -> str:
    """The prompt around the texts that depend on the tools; every dialect's frame takes the same three."""
    return _TAGS.format(calls=_TAGS_CALLS.format(calls=tools, first=first))


def execute_frame(example: str, tools: str, first: str) -> str:
    """As ``tags_frame``: an example of calls, a line a tool, and the first tool's name."""
    return _NAMED.format(calls=_EXECUTE_CALLS.format(example=example, tools=tools), block="a block")


def hermes_frame(example: str, tools: str, first: str) -> str:
    """As ``execute_frame``."""
    return _NAMED.format(calls=_HERMES_CALLS.format(example=example, tools=tools), block="a call")


def _named_prompt(frame: Frame, tools: Sequence[Tool], render: RenderCalls) -> str:
    if not tools:
        return _NAMED.format(calls="", block="anything else")
    example = render([ToolCall(tool.name, tool.example) for tool in tools[:2]])
    lines = [f"{tool.name} {_describe_arguments(tool)}: {tool.description}" for tool in tools]
    return frame(example, "\n".join(lines), tools[0].name)


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
