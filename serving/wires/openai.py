"""The wire of OpenAI's Chat Completions, which many servers speak: argument text, one tool message a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.conversation import Message, MessageRole, Part, Text, with_places
from callwright.serving.protocol.values import (
    ChoiceMode,
    Extra,
    Rejection,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from callwright.serving.wires.base import Json, LossKind, WireError
from callwright.serving.wires.choices import parse_choice
from callwright.serving.wires.context import Context
from callwright.serving.wires.reader import Reader, mapping, sequence
from callwright.serving.wires.schemas import check_strict, client_tool, schema_of, tool_of

HISTORY = "messages"
_OWN_FIELDS = ("reasoning_content", "reasoning", "refusal", "audio")


def tool_to(tool: Tool, ctx: Context) -> Json:
    ctx.keep_private(tool, strict=True)
    function: Json = {"name": ctx.name(tool.name)}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = schema_of(tool)
    if tool.strict:
        check_strict(tool, ctx)
        function["strict"] = True
    return {"type": "function", "function": function}


def tool_from(data: Any, reader: Reader) -> Tool:
    function = mapping(client_tool(data, ("function", None)).get("function"), "function")
    return tool_of(function, "parameters", reader)


def tools_to(tools: Sequence[Tool], ctx: Context) -> Json:
    return {"tools": [tool_to(tool, ctx) for tool in tools]}


def tools_from(body: Mapping[str, Any], reader: Reader) -> list[Tool]:
    return [tool_from(data, reader) for data in sequence(body.get("tools"), "tools")]


def choice_to(choice: ToolChoice, ctx: Context) -> Json:
    word = "required" if choice.mode is ChoiceMode.ANY else str(choice.mode)
    names = [{"type": "function", "function": {"name": ctx.name(name)}} for name in choice.names]
    value: Any = word
    if choice.mode is ChoiceMode.NAMED:
        value = names[0]
    elif names:
        value = {"type": "allowed_tools", "allowed_tools": {"mode": word, "tools": names}}
    return {"tool_choice": value, **parallel(choice)}


def parallel(choice: ToolChoice) -> Json:
    return {} if choice.parallel is None else {"parallel_tool_calls": choice.parallel}


def choice_from(body: Mapping[str, Any], reader: Reader) -> ToolChoice:
    return parse_choice(body.get("tool_choice"), body.get("parallel_tool_calls"), reader)


def call_to(call: ToolCall | Rejection, ctx: Context) -> Json:
    call_id = call.id if isinstance(call, ToolCall) else call.call_id
    if isinstance(call, ToolCall):
        ctx.own(call.extra)
    function = {"name": ctx.call_name(call), "arguments": ctx.arguments_text(call)}
    return {"id": ctx.id(call_id), "type": "function", "function": function}


def result_to(result: ToolResult, ctx: Context) -> Json:
    content: Any = ctx.flagless(result)
    own = ctx.own(result.extra)
    if own:
        content = [{"type": "text", "text": content}, *own["content"]]
    return {"role": "tool", "tool_call_id": ctx.id(result.call_id), "content": content}


def result_from(data: Any, reader: Reader) -> ToolResult:
    data = mapping(data, "a tool message")
    parts = _content_from(data.get("content"), reader)
    others = [dict(part.data) for part in parts if isinstance(part, Extra)]
    extra = reader.extra({"content": others}) if others else None
    text = Message(MessageRole.TOOL, tuple(parts)).text
    return reader.result(text, call_id=str(data.get("tool_call_id") or ""), extra=extra)


def messages_to(messages: Sequence[Message], ctx: Context) -> Json:
    return {HISTORY: [data for message in messages for data in _message_to(message, ctx)]}


def _message_to(message: Message, ctx: Context) -> list[Json]:
    if message.role is MessageRole.TOOL:
        return [result_to(result, ctx) for result in message.results]
    content = _content_to(message, ctx)
    if message.role is not MessageRole.ASSISTANT:
        return [{"role": str(message.role), "content": content}]
    data: Json = {"role": "assistant", "content": content or None if message.calls else content}
    for extra in message.extras:
        data |= ctx.own(extra)
    if message.calls:
        data["tool_calls"] = [call_to(call, ctx) for call in message.calls]
    return [data]


def _content_to(message: Message, ctx: Context) -> str | list[Json]:
    """One text as a string; several, or a text and a part of the vendor's own, as a list of parts."""
    parts: list[Json] = []
    called = False
    for part in message.parts:
        called = called or isinstance(part, ToolCall | Rejection)
        if isinstance(part, Text):
            if called:
                ctx.lose(LossKind.PART_ORDER, "text after a call stands before it: this wire keeps them apart")
            ctx.own(part.extra)
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, Extra) and message.role is not MessageRole.ASSISTANT and (own := ctx.own(part)):
            parts.append(own)
    if all(part["type"] == "text" for part in parts) and len(parts) < 2:
        return "".join(part["text"] for part in parts)
    return parts


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
        elif role == "assistant":
            messages.append(_assistant(data, reader, cut=False))
        elif role in ("system", "developer", "user"):
            parts = _content_from(data.get("content"), reader)
            messages.append(Message(MessageRole.USER if role == "user" else MessageRole.SYSTEM, with_places(parts)))
        else:
            raise WireError(f"there is no message role {str(role)[:40]!r} on this wire")
    return messages


def _content_from(content: Any, reader: Reader) -> list[Part]:
    if content is None or isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for item in sequence(content, "content"):
        part = mapping(item, "a content part")
        if part.get("type") == "text":
            parts.append(Text(str(part.get("text", ""))))
        else:
            parts.append(reader.extra(part))
    return parts


def _assistant(data: Mapping[str, Any], reader: Reader, cut: bool) -> Message:
    reader.turn()
    own = {key: data[key] for key in _OWN_FIELDS if data.get(key)}
    if isinstance(own.get("audio"), Mapping):
        own["audio"] = {"id": own["audio"].get("id")}  # all that may be sent back of it
    parts: list[Part] = [reader.extra(own)] if own else []
    for part in _content_from(data.get("content"), reader):
        # In an assistant's message a part that is not text is a refusal.
        parts.append(reader.extra({"refusal": part.data.get("refusal")}) if isinstance(part, Extra) else part)
    calls = sequence(data.get("tool_calls"), "tool_calls")
    for number, item in enumerate(calls, 1):
        call = mapping(item, "a tool call")
        function = mapping(call.get("function") or call.get("custom") or {}, "function")
        arguments = function.get("arguments", function.get("input"))
        parts.append(
            reader.call(function.get("name"), arguments, call.get("id"), cut=cut and number == len(calls)),
        )
    if data.get("function_call") and not calls:  # the older way to write a single call, without an id
        older = mapping(data["function_call"], "function_call")
        parts.append(reader.call(older.get("name"), older.get("arguments"), cut=cut))
    return Message(MessageRole.ASSISTANT, with_places(parts), cut)


def read_reply(response: Mapping[str, Any], reader: Reader) -> Message:
    """The first choice of a completion; a bare message is read too."""
    if "choices" not in response:
        return _assistant(mapping(response.get("message", response), "message"), reader, cut=False)
    choices = sequence(response["choices"], "choices")
    choice = mapping(choices[0], "a choice") if choices else {}
    return _assistant(mapping(choice.get("message") or {}, "message"), reader, choice.get("finish_reason") == "length")
