"""The wire of OpenAI's Responses: a flat list of items; calls are items of their own, paired by ``call_id``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
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
from callwright.serving.wires.openai import parallel
from callwright.serving.wires.reader import Reader, mapping, sequence
from callwright.serving.wires.schemas import check_strict, client_tool, schema_of, tool_of

HISTORY = "input"
_MADE_HERE = ("type", "role", "content", "call_id", "name", "arguments")


def tool_to(tool: Tool, ctx: Context) -> Json:
    ctx.keep_private(tool, strict=True)
    data: Json = {"type": "function", "name": ctx.name(tool.name)}
    if tool.description:
        data["description"] = tool.description
    if tool.strict:
        check_strict(tool, ctx)
    # A missing strict counts as true here, so it is always said.
    return {**data, "parameters": schema_of(tool), "strict": tool.strict}


def tool_from(data: Any, reader: Reader) -> Tool:
    # A missing strict is read as false: the schema is then held to as it is written, and never rewritten.
    return tool_of(client_tool(data, ("function", None)), "parameters", reader)


def tools_to(tools: Sequence[Tool], ctx: Context) -> Json:
    return {"tools": [tool_to(tool, ctx) for tool in tools]}


def tools_from(body: Mapping[str, Any], reader: Reader) -> list[Tool]:
    return [tool_from(data, reader) for data in sequence(body.get("tools"), "tools")]


def choice_to(choice: ToolChoice, ctx: Context) -> Json:
    word = "required" if choice.mode is ChoiceMode.ANY else str(choice.mode)
    names = [{"type": "function", "name": ctx.name(name)} for name in choice.names]
    value: Any = word
    if choice.mode is ChoiceMode.NAMED:
        value = names[0]
    elif names:
        value = {"type": "allowed_tools", "mode": word, "tools": names}
    return {"tool_choice": value, **parallel(choice)}


def choice_from(body: Mapping[str, Any], reader: Reader) -> ToolChoice:
    return parse_choice(body.get("tool_choice"), body.get("parallel_tool_calls"), reader)


def call_to(call: ToolCall | Rejection, ctx: Context) -> Json:
    own = ctx.own(call.extra) if isinstance(call, ToolCall) else {}
    return {
        **own,
        "type": "function_call",
        "call_id": ctx.id(call.id if isinstance(call, ToolCall) else call.call_id),
        "name": ctx.call_name(call),
        "arguments": ctx.arguments_text(call),
    }


def result_to(result: ToolResult, ctx: Context) -> Json:
    output: Any = ctx.flagless(result)
    own = ctx.own(result.extra)
    if own:
        output = [{"type": "input_text", "text": output}, *own["output"]]
    return {"type": "function_call_output", "call_id": ctx.id(result.call_id), "output": output}


def result_from(data: Any, reader: Reader) -> ToolResult:
    item = mapping(data, "a function call output")
    parts = _texts(item.get("output"), reader, ("input_text", "output_text"))
    others = [dict(part.data) for part in parts if isinstance(part, Extra)]
    text = Message(MessageRole.TOOL, tuple(parts)).text
    extra = reader.extra({"output": others}) if others else None
    return reader.result(text, call_id=str(item.get("call_id") or ""), extra=extra)


def messages_to(messages: Sequence[Message], ctx: Context) -> Json:
    for before, after in pairwise(messages):
        if before.role is after.role is MessageRole.ASSISTANT:
            ctx.lose(LossKind.BOUNDARY, "items do not say where one of the assistant's messages ends")
    items = [_items_to(message, ctx) for message in messages]
    if not all(items):
        ctx.lose(LossKind.EMPTY_MESSAGE, "a message without parts has no items")
    return {HISTORY: [item for message in items for item in message]}


def _items_to(message: Message, ctx: Context) -> list[Json]:
    if message.role is MessageRole.TOOL:
        return [result_to(result, ctx) for result in message.results]
    if message.role is MessageRole.ASSISTANT:
        return [item for part in message.parts if (item := _assistant_item(part, ctx))]
    parts: list[Json] = []
    for part in message.parts:
        if isinstance(part, Text):
            ctx.own(part.extra)
            parts.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Extra) and (own := ctx.own(part)):
            parts.append(own)
    single = len(parts) == 1 and parts[0]["type"] == "input_text"
    content = parts[0]["text"] if single else parts
    return [{"type": "message", "role": str(message.role), "content": content}]


def _assistant_item(part: Part, ctx: Context) -> Json:
    if isinstance(part, ToolCall | Rejection):
        return call_to(part, ctx)
    if isinstance(part, Extra):
        return ctx.own(part)
    assert isinstance(part, Text)
    own = ctx.own(part.extra)
    if own.get("id"):  # an item that the vendor knows: sent back whole
        annotations = own.pop("annotations", [])
        content = [{"type": "output_text", "text": part.text, "annotations": annotations}]
        return {"status": "completed", **own, "type": "message", "role": "assistant", "content": content}
    return {**own, "type": "message", "role": "assistant", "content": part.text}


def messages_from(body: Mapping[str, Any], reader: Reader) -> list[Message]:
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append(Message.of(MessageRole.SYSTEM, str(body["instructions"])))
    history = body.get(HISTORY)
    items = [{"role": "user", "content": history}] if isinstance(history, str) else sequence(history, HISTORY)
    for data in items:
        item = mapping(data, "an item")
        role, parts = _item_from(item, reader, messages)
        if messages and messages[-1].role is role and role in (MessageRole.ASSISTANT, MessageRole.TOOL):
            messages[-1] = Message(role, with_places((*messages[-1].parts, *parts)))
        else:
            messages.append(Message(role, with_places(parts)))
    return messages


def _item_from(item: Mapping[str, Any], reader: Reader, before: list[Message]) -> tuple[MessageRole, list[Part]]:
    kind = item.get("type", "message")
    if kind == "function_call_output":
        return MessageRole.TOOL, [result_from(item, reader)]
    if kind == "message" and item.get("role") != "assistant":
        role = item.get("role")
        if role not in ("user", "system", "developer"):
            raise WireError(f"there is no message role {str(role)[:40]!r} on this wire")
        parts = _texts(item.get("content"), reader, ("input_text",))
        return MessageRole.USER if role == "user" else MessageRole.SYSTEM, parts
    if not before or before[-1].role is not MessageRole.ASSISTANT:
        reader.turn()
    return MessageRole.ASSISTANT, _output_item(item, reader, cut=False)


def _output_item(item: Mapping[str, Any], reader: Reader, cut: bool) -> list[Part]:
    kind = item.get("type", "message")
    if kind == "function_call":
        status = item.get("status")
        cut = (cut and status != "completed") or status in ("incomplete", "in_progress")
        rest = {key: value for key, value in item.items() if key not in _MADE_HERE}
        extra = reader.extra(rest) if rest.get("id") else None
        return [reader.call(item.get("name"), item.get("arguments"), item.get("call_id"), cut=cut, extra=extra)]
    if kind != "message":
        return [reader.extra(item)]
    rest = {key: value for key, value in item.items() if key not in _MADE_HERE}
    parts = _texts(item.get("content"), reader, ("output_text", "input_text"))
    # A refusal is no text: it stays an item of its own.
    item = {"type": "message", "role": "assistant", **rest}
    whole = [reader.extra({**item, "content": [part.data]}) if isinstance(part, Extra) else part for part in parts]
    if not any(rest.get(key) for key in ("id", "phase")):
        return whole
    return [Text(part.text, reader.extra(rest)) if isinstance(part, Text) else part for part in whole]


def _texts(content: Any, reader: Reader, kinds: tuple[str, ...]) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for data in sequence(content, "content"):
        part = mapping(data, "a content part")
        if part.get("type") in kinds:
            parts.append(Text(str(part.get("text", ""))))
        else:
            parts.append(reader.extra(part))
    return parts


def read_reply(response: Mapping[str, Any], reader: Reader) -> Message:
    """The output items of a response; of one that was cut off, the last call may be refused."""
    reader.turn()
    output = sequence(response.get("output"), "output")
    cut = response.get("status") == "incomplete"
    parts: list[Part] = []
    for number, item in enumerate(output, 1):
        parts += _output_item(mapping(item, "an item"), reader, cut and number == len(output))
    return Message(MessageRole.ASSISTANT, with_places(parts), cut)
