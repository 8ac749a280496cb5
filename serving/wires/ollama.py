"""The wire of Ollama's chat: as OpenAI's, but arguments are objects and a result names its tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.conversation import Message, MessageRole, Part, Text, with_places
from callwright.serving.protocol.values import (
    Extra,
    Rejection,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from callwright.serving.wires import openai
from callwright.serving.wires.base import Json, LossKind, WireError
from callwright.serving.wires.choices import unforced_choice_from, unforced_choice_to
from callwright.serving.wires.context import Context
from callwright.serving.wires.reader import Reader, mapping, sequence
from callwright.serving.wires.schemas import schema_of

HISTORY = "messages"
# What the server's own types read of a schema; it shows the model nothing else.
_SCHEMA_WORDS = {"type", "$defs", "items", "required", "properties"}
_PROPERTY_WORDS = {"type", "items", "description", "enum"}


def tool_to(tool: Tool, ctx: Context) -> Json:
    ctx.keep_private(tool)
    unread = set(tool.input_schema) - _SCHEMA_WORDS
    for schema in tool.properties.values():
        unread |= set(schema) - _PROPERTY_WORDS
    if unread:
        ctx.lose(LossKind.TOOL_SCHEMA, f"the server does not read {', '.join(sorted(unread))}")
    function = {"name": ctx.name(tool.name), "description": tool.description, "parameters": schema_of(tool)}
    return {"type": "function", "function": function}


def tool_from(data: Any, reader: Reader) -> Tool:
    return openai.tool_from(data, reader)


def tools_to(tools: Sequence[Tool], ctx: Context) -> Json:
    return {"tools": [tool_to(tool, ctx) for tool in tools]}


def tools_from(body: Mapping[str, Any], reader: Reader) -> list[Tool]:
    return openai.tools_from(body, reader)


def choice_to(choice: ToolChoice, ctx: Context) -> Json:
    """Auto is no field, none is no tools; nothing can be forced."""
    return unforced_choice_to(choice, ctx)


def choice_from(body: Mapping[str, Any], reader: Reader) -> ToolChoice:
    return unforced_choice_from(body)


def call_to(call: ToolCall | Rejection, ctx: Context) -> Json:
    if isinstance(call, ToolCall):
        ctx.own(call.extra)
    own_id = ctx.own_id(call.id if isinstance(call, ToolCall) else call.call_id)
    function = {"function": {"name": ctx.call_name(call), "arguments": ctx.arguments(call)}}
    return {"id": own_id, **function} if own_id else function


def result_to(result: ToolResult, ctx: Context) -> Json:
    ctx.own(result.extra)
    data = {"role": "tool", "tool_name": ctx.name(result.tool), "content": ctx.flagless(result)}
    own_id = ctx.own_id(result.call_id)
    return {**data, "tool_call_id": own_id} if own_id else data


def result_from(data: Any, reader: Reader) -> ToolResult:
    data = mapping(data, "a tool message")
    content = str(data.get("content") or "")
    return reader.result(content, call_id=data.get("tool_call_id"), tool=data.get("tool_name") or data.get("name"))


def messages_to(messages: Sequence[Message], ctx: Context) -> Json:
    return {HISTORY: [data for message in messages for data in _message_to(message, ctx)]}


def _message_to(message: Message, ctx: Context) -> list[Json]:
    if message.role is MessageRole.TOOL:
        return [result_to(result, ctx) for result in message.results]
    data: Json = {"role": str(message.role), "content": ctx.joined(message)}
    for part in message.parts:
        if isinstance(part, Extra):
            data |= ctx.own(part)
        elif isinstance(part, Text):
            ctx.own(part.extra)
    if message.calls:
        data["tool_calls"] = [call_to(call, ctx) for call in message.calls]
    return [data]


def messages_from(body: Mapping[str, Any], reader: Reader) -> list[Message]:
    messages: list[Message] = []
    for item in sequence(body.get(HISTORY), HISTORY):
        data = mapping(item, "a message")
        role = data.get("role")
        if role == "tool":
            result = result_from(data, reader)
            if messages and messages[-1].role is MessageRole.TOOL:
                messages[-1] = Message.of(MessageRole.TOOL, *messages[-1].parts, result)
            else:
                messages.append(Message.of(MessageRole.TOOL, result))
        elif role in ("system", "user", "assistant"):
            messages.append(_message_from(data, MessageRole(role), reader, cut=False))
        else:
            raise WireError(f"there is no message role {str(role)[:40]!r} on this wire")
    return messages


def _message_from(data: Mapping[str, Any], role: MessageRole, reader: Reader, cut: bool) -> Message:
    own = {key: data[key] for key in ("thinking", "images") if data.get(key)}
    parts: list[Part] = [reader.extra(own)] if own else []
    if data.get("content"):
        parts.append(Text(str(data["content"])))
    if role is MessageRole.ASSISTANT:
        reader.turn()
        calls = sequence(data.get("tool_calls"), "tool_calls")
        for number, item in enumerate(calls, 1):
            call = mapping(item, "a tool call")
            function = mapping(call.get("function") or {}, "function")
            last = cut and number == len(calls)
            parts.append(reader.call(function.get("name"), function.get("arguments"), call.get("id"), cut=last))
    return Message(role, with_places(parts), cut)


def read_reply(response: Mapping[str, Any], reader: Reader) -> Message:
    """The message of a reply; a bare message is read too."""
    message = mapping(response.get("message", response), "message")
    return _message_from(message, MessageRole.ASSISTANT, reader, response.get("done_reason") == "length")
