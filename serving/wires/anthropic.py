"""The wire of Anthropic's Messages: blocks in order, arguments as objects, a turn's results in one user message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.conversation import Message, MessageRole, Part, Text, with_places
from callwright.serving.protocol.values import (
    ChoiceMode,
    Extra,
    Rejection,
    ResultStatus,
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


def tool_to(tool: Tool, ctx: Context) -> Json:
    ctx.keep_private(tool, strict=True, example=True)
    data: Json = {"name": ctx.name(tool.name)}
    if tool.description:
        data["description"] = tool.description
    data["input_schema"] = schema_of(tool)
    if tool.example:
        data["input_examples"] = [dict(tool.example)]
    if tool.strict:
        check_strict(tool, ctx, all_required=False)
        data["strict"] = True
    return data


def tool_from(data: Any, reader: Reader) -> Tool:
    data = client_tool(data, ("custom", None))
    tool = tool_of(data, "input_schema", reader)
    examples = sequence(data.get("input_examples"), "input_examples")
    example = mapping(examples[0], "an example") if examples else {}
    return Tool(tool.name, tool.description, tool.input_schema, example=example, strict=tool.strict)


def tools_to(tools: Sequence[Tool], ctx: Context) -> Json:
    return {"tools": [tool_to(tool, ctx) for tool in tools]}


def tools_from(body: Mapping[str, Any], reader: Reader) -> list[Tool]:
    return [tool_from(data, reader) for data in sequence(body.get("tools"), "tools")]


def choice_to(choice: ToolChoice, ctx: Context) -> Json:
    forced = choice.mode in (ChoiceMode.ANY, ChoiceMode.NAMED)
    if forced and ctx.thinking:
        raise ctx.refuse("force a call while thinking is on")
    if forced and ctx.table.gates(ctx.model).get("forced_choice") is False:
        raise ctx.refuse("force a call")
    if choice.names and choice.mode is not ChoiceMode.NAMED:
        raise ctx.refuse("allow a part of the tools: send only those")
    value: Json = {"type": str(choice.mode)}
    if choice.mode is ChoiceMode.NAMED:
        value = {"type": "tool", "name": ctx.name(choice.names[0])}
    if choice.parallel is not None and choice.mode is ChoiceMode.NONE:
        ctx.lose(LossKind.CHOICE_PARALLEL, "the choice none has no field for it")
    elif choice.parallel is not None:
        value["disable_parallel_tool_use"] = not choice.parallel
    return {"tool_choice": value}


def choice_from(body: Mapping[str, Any], reader: Reader) -> ToolChoice:
    value = body.get("tool_choice")
    disabled = value.get("disable_parallel_tool_use") if isinstance(value, Mapping) else None
    return parse_choice(value, None if disabled is None else not disabled, reader)


def call_to(call: ToolCall | Rejection, ctx: Context) -> Json:
    call_id = call.id if isinstance(call, ToolCall) else call.call_id
    own = ctx.own(call.extra) if isinstance(call, ToolCall) else {}
    block = {"type": "tool_use", "id": ctx.id(call_id), "name": ctx.call_name(call), "input": ctx.arguments(call)}
    return {**own, **block}


def result_to(result: ToolResult, ctx: Context) -> Json:
    content: Any = result.content
    own = ctx.own(result.extra)
    if own:
        content = [*([{"type": "text", "text": content}] if content else []), *own["content"]]
    block = {"type": "tool_result", "tool_use_id": ctx.id(result.call_id), "content": content}
    return {**block, "is_error": True} if result.status == ResultStatus.FAILURE else block


def result_from(data: Any, reader: Reader) -> ToolResult:
    block = mapping(data, "a tool result")
    parts = _blocks_from(block.get("content"), reader, cut=False)
    others = [dict(part.data) for part in parts if isinstance(part, Extra)]
    return reader.result(
        Message(MessageRole.TOOL, tuple(parts)).text,
        failed=block.get("is_error") is True,
        call_id=str(block.get("tool_use_id") or ""),
        extra=reader.extra({"content": others}) if others else None,
    )


def messages_to(messages: Sequence[Message], ctx: Context) -> Json:
    first = next((i for i, message in enumerate(messages) if message.role is not MessageRole.SYSTEM), len(messages))
    # Every system message is one text, so that they stay apart.
    system = [{"type": "text", "text": text} for message in messages[:first] if (text := ctx.joined(message))]
    history: list[Json] = []
    results_last = False
    for message in messages[first:]:
        content = blocks_to(message, ctx)
        if not content:
            ctx.lose(LossKind.EMPTY_MESSAGE, "this wire refuses a message without content")
            continue
        role = "user" if message.role is MessageRole.TOOL else str(message.role)
        if message.role is MessageRole.SYSTEM and ctx.table.gates(ctx.model).get("later_system") is False:
            ctx.lose(LossKind.ROLE, f"a later system message is a user's: {ctx.model} takes none")
            role = "user"
        if results_last and message.role is MessageRole.USER:
            # What the user says next stands behind the results, in the same message.
            history[-1]["content"] += content
        else:
            history.append({"role": role, "content": content})
        results_last = message.role is MessageRole.TOOL
    for data in history:
        data["content"] = _folded(data["content"])
    return {**({"system": _folded(system)} if system else {}), HISTORY: history}


def _folded(blocks: list[Json]) -> str | list[Json]:
    """A single plain text as a string."""
    plain = len(blocks) == 1 and set(blocks[0]) == {"type", "text"}
    return str(blocks[0]["text"]) if plain else blocks


def blocks_to(message: Message, ctx: Context) -> list[Json]:
    return [block for part in message.parts for block in _block_to(part, ctx)]


def _block_to(part: Part, ctx: Context) -> list[Json]:
    """The blocks of a part: none for an empty text, which the vendor refuses, and for what only others can read."""
    if isinstance(part, Text):
        own = ctx.own(part.extra)
        return [{**own, "type": "text", "text": part.text}] if part.text else []
    if isinstance(part, ToolResult):
        return [result_to(part, ctx)]
    if isinstance(part, Extra):
        own = ctx.own(part)
        return [own] if own else []
    return [call_to(part, ctx)]


def messages_from(body: Mapping[str, Any], reader: Reader) -> list[Message]:
    messages: list[Message] = []
    for part in _blocks_from(body.get("system"), reader, cut=False):
        messages.append(Message.of(MessageRole.SYSTEM, part))
    for item in sequence(body.get(HISTORY), HISTORY):
        data = mapping(item, "a message")
        role = data.get("role")
        if role not in ("user", "assistant", "system"):
            raise WireError(f"there is no message role {str(role)[:40]!r} on this wire")
        if role == "assistant":
            reader.turn()
        parts = _blocks_from(data.get("content"), reader, cut=False)
        results = [part for part in parts if isinstance(part, ToolResult)]
        rest = [part for part in parts if not isinstance(part, ToolResult)]
        if results:
            messages.append(Message.of(MessageRole.TOOL, *results))
        if rest or not results:
            messages.append(Message(MessageRole(role), with_places(rest)))
    return messages


def _blocks_from(content: Any, reader: Reader, cut: bool) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    blocks = sequence(content, "content")
    return [_part_of(mapping(block, "a block"), reader, cut and block is blocks[-1]) for block in blocks]


def _part_of(block: Mapping[str, Any], reader: Reader, cut: bool) -> Part:
    kind = block.get("type")
    rest = {key: value for key, value in block.items() if key not in ("type", "text", "id", "name", "input")}
    if kind == "text":
        return Text(str(block.get("text", "")), reader.extra(rest) if rest else None)
    if kind == "tool_use":
        # Cut off, an input may be a part of itself that happens to be an object; text shows whether it is whole.
        arguments = block.get("input")
        arguments = None if cut and not isinstance(arguments, str) else arguments
        return reader.call(
            block.get("name"), arguments, block.get("id"), cut=cut, extra=reader.extra(rest) if rest else None
        )
    if kind == "tool_result":
        return result_from(block, reader)
    return reader.extra(block)


def read_reply(response: Mapping[str, Any], reader: Reader) -> Message:
    """The content of a message; of one that was cut off, a call at its end is refused."""
    reader.turn()
    cut = response.get("stop_reason") in ("max_tokens", "model_context_window_exceeded")
    parts = _blocks_from(response.get("content"), reader, cut)
    return Message(MessageRole.ASSISTANT, with_places(parts), cut)
