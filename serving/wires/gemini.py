"""The wire of Gemini: parts in order, arguments as objects, all results of a turn in one user content.

Keys are written in camel case, as documented, and read in either case. A thought signature belongs to the part that
brought it: it goes back there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from callwright.serving.protocol.conversation import Message, MessageRole, Part, Text, with_places
from callwright.serving.protocol.values import (
    ChoiceMode,
    Extra,
    Rejection,
    RejectionCode,
    ResultStatus,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    compact_json,
)
from callwright.serving.wires.base import Json, LossKind, WireError
from callwright.serving.wires.context import Context
from callwright.serving.wires.openapi import json_schema_of
from callwright.serving.wires.reader import Reader, mapping, sequence
from callwright.serving.wires.schemas import schema_of, tool_of

HISTORY = "contents"
# The vendor's documented stand-in for a signature that a call of another model cannot have.
SIGNATURE_BYPASS = "skip_thought_signature_validator"


def tool_to(tool: Tool, ctx: Context) -> Json:
    return {"functionDeclarations": [_declaration(tool, ctx)]}


def _declaration(tool: Tool, ctx: Context) -> Json:
    ctx.keep_private(tool)
    data: Json = {"name": ctx.name(tool.name)}
    if tool.description:
        data["description"] = tool.description
    # Plain JSON Schema has a field of its own; `parameters` takes a subset of OpenAPI only. Never both.
    return {**data, "parametersJsonSchema": schema_of(tool)}


def tool_from(data: Any, reader: Reader) -> Tool:
    """The one tool of an element of ``tools``, or of a bare declaration."""
    declarations = _declarations(mapping(data, "a tool"))
    if len(declarations) != 1:
        raise WireError(f"one tool was asked for, and {len(declarations)} are declared")
    return _tool_of(declarations[0], reader)


def _declarations(data: Mapping[str, Any]) -> Sequence[Any]:
    listed = _get(data, "functionDeclarations")
    if listed is None and "name" not in data:
        raise WireError(f"the tool {', '.join(map(str, data))[:40]!r} is the vendor's own: only functions are read")
    return [data] if listed is None else sequence(listed, "functionDeclarations")


def _tool_of(declaration: Any, reader: Reader) -> Tool:
    data = mapping(declaration, "a declaration")
    schema = _get(data, "parametersJsonSchema")
    if schema is None and data.get("parameters") is not None:
        schema = json_schema_of(data["parameters"])
    return tool_of({**data, "schema": schema, "strict": False}, "schema", reader)


def tools_to(tools: Sequence[Tool], ctx: Context) -> Json:
    return {"tools": [{"functionDeclarations": [_declaration(tool, ctx) for tool in tools]}]} if tools else {}


def tools_from(body: Mapping[str, Any], reader: Reader) -> list[Tool]:
    listed = [mapping(data, "a tool") for data in sequence(body.get("tools"), "tools")]
    tools = [_tool_of(declaration, reader) for data in listed for declaration in _declarations(data)]
    # This vendor's strictness is a mode of the choice, for all tools at once.
    return [replace(tool, strict=True) for tool in tools] if _mode(_calling(body)) == "VALIDATED" else tools


def choice_to(choice: ToolChoice, ctx: Context) -> Json:
    mode = ChoiceMode.ANY if choice.mode is ChoiceMode.NAMED else choice.mode
    # A list of allowed names goes with ANY; with VALIDATED the model may also answer in text.
    word = "VALIDATED" if mode is ChoiceMode.AUTO and choice.names else mode.upper()
    config: Json = {"mode": word}
    if choice.names:
        config["allowedFunctionNames"] = [ctx.name(name) for name in choice.names]
    if choice.parallel is not None:
        ctx.lose(LossKind.CHOICE_PARALLEL, "this wire has no field for it")
    return {"toolConfig": {"functionCallingConfig": config}}


def choice_from(body: Mapping[str, Any], reader: Reader) -> ToolChoice:
    config = _calling(body)
    names = tuple(reader.name(str(name)) for name in sequence(_get(config, "allowedFunctionNames"), "names"))
    word = _mode(config)
    if word not in ("AUTO", "VALIDATED", "ANY", "NONE", "MODE_UNSPECIFIED"):
        raise WireError(f"there is no function calling mode {word[:40]!r}")
    if word == "ANY" and len(names) == 1:
        return ToolChoice(ChoiceMode.NAMED, names)
    mode = {"ANY": ChoiceMode.ANY, "NONE": ChoiceMode.NONE}.get(word, ChoiceMode.AUTO)
    return ToolChoice(mode, () if mode is ChoiceMode.NONE else names)


def _calling(body: Mapping[str, Any]) -> Mapping[str, Any]:
    config = _get(mapping(_get(body, "toolConfig") or body, "toolConfig"), "functionCallingConfig") or {}
    return mapping(config, "functionCallingConfig")


def _mode(config: Mapping[str, Any]) -> str:
    return str(config.get("mode") or "AUTO").upper()


def call_to(call: ToolCall | Rejection, ctx: Context) -> Json:
    own_id = ctx.own_id(call.id if isinstance(call, ToolCall) else call.call_id)
    function = {"name": ctx.call_name(call), "args": ctx.arguments(call)}
    own = ctx.own(call.extra) if isinstance(call, ToolCall) else {}
    return {"functionCall": {"id": own_id, **function} if own_id else function, **own}


def result_to(result: ToolResult, ctx: Context) -> Json:
    key = "error" if result.status == ResultStatus.FAILURE else "output"
    response: Json = {"name": ctx.name(result.tool), "response": {key: result.content}, **ctx.own(result.extra)}
    own_id = ctx.own_id(result.call_id)
    return {"functionResponse": {"id": own_id, **response} if own_id else response}


def result_from(data: Any, reader: Reader) -> ToolResult:
    data = mapping(data, "a function response")
    data = mapping(_get(data, "functionResponse") or data, "functionResponse")
    response = mapping(data.get("response") or {}, "response")
    key = next(iter(response), "") if len(response) == 1 else ""
    value = response[key] if key in ("output", "error") else dict(response)
    content = value if isinstance(value, str) else compact_json(value)
    rest = {name: data[name] for name in data if name not in ("id", "name", "response")}
    return reader.result(
        content,
        failed=key == "error",
        call_id=data.get("id"),
        tool=data.get("name"),
        extra=reader.extra(rest) if rest else None,
    )


def messages_to(messages: Sequence[Message], ctx: Context) -> Json:
    first = next((i for i, message in enumerate(messages) if message.role is not MessageRole.SYSTEM), len(messages))
    # Every system message is one part, so that they stay apart.
    system = [{"text": text} for message in messages[:first] if (text := ctx.joined(message))]
    contents: list[Json] = []
    for message in messages[first:]:
        if message.role is MessageRole.SYSTEM:
            ctx.lose(LossKind.ROLE, "a later system message is a user's: this wire has one place for the system")
        parts = parts_to(message, ctx)
        if parts:
            contents.append({"role": "model" if message.role is MessageRole.ASSISTANT else "user", "parts": parts})
        else:
            ctx.lose(LossKind.EMPTY_MESSAGE, "this wire refuses a content without parts")
    return {**({"systemInstruction": {"parts": system}} if system else {}), HISTORY: contents}


def parts_to(message: Message, ctx: Context) -> list[Json]:
    parts = [data for part in message.parts if (data := _part_to(part, ctx))]
    calls = [part for part in parts if "functionCall" in part]
    signed = not ctx.serving and ctx.table.gates(ctx.model).get("thought_signature", True)
    # Only the first call of a step carries one, and only its own model can have made it.
    if calls and signed and "thoughtSignature" not in calls[0]:
        if ctx.signature_bypass:
            calls[0]["thoughtSignature"] = SIGNATURE_BYPASS
        else:
            ctx.lose(LossKind.CALL_SIGNATURE, "the first call has no signature of this vendor, which may refuse it")
    return parts


def _part_to(part: Part, ctx: Context) -> Json:
    if isinstance(part, Text):
        own = ctx.own(part.extra)
        return {"text": part.text, **own} if part.text or own else {}
    if isinstance(part, ToolResult):
        return result_to(part, ctx)
    if isinstance(part, Extra):
        return ctx.own(part)
    return call_to(part, ctx)


def messages_from(body: Mapping[str, Any], reader: Reader) -> list[Message]:
    messages: list[Message] = []
    system = _get(body, "systemInstruction")
    if system:
        texts = {"parts": [{"text": system}]} if isinstance(system, str) else mapping(system, "systemInstruction")
        parts = _parts_from(sequence(texts.get("parts"), "parts"), reader, cut=False)
        messages += [Message.of(MessageRole.SYSTEM, part) for part in parts]
    history = body.get(HISTORY)
    contents = [{"role": "user", "parts": [{"text": history}]}] if isinstance(history, str) else history
    for item in sequence(contents, HISTORY):
        content = mapping(item, "a content")
        role = content.get("role") or "user"
        if role not in ("user", "model", "function"):
            raise WireError(f"there is no role {str(role)[:40]!r} on this wire")
        if role == "model":
            reader.turn()
        read = _parts_from(sequence(content.get("parts"), "parts"), reader, cut=False)
        results = [part for part in read if isinstance(part, ToolResult)]
        rest = [part for part in read if not isinstance(part, ToolResult)]
        if results:
            messages.append(Message.of(MessageRole.TOOL, *results))
        if rest or not results:
            kind = MessageRole.ASSISTANT if role == "model" else MessageRole.USER
            messages.append(Message(kind, with_places(rest)))
    return messages


def _parts_from(parts: Sequence[Any], reader: Reader, cut: bool) -> list[Part]:
    return [_part_from(mapping(part, "a part"), reader, cut and part is parts[-1]) for part in parts]


def _part_from(part: Mapping[str, Any], reader: Reader, cut: bool) -> Part:
    signature = _get(part, "thoughtSignature")
    extra = reader.extra({"thoughtSignature": signature}) if signature else None
    call = _get(part, "functionCall")
    if call is not None:
        call = mapping(call, "functionCall")
        # Arguments in pieces come only where they were asked for; read as absent they would be run as none.
        cut = cut or bool(_get(call, "partialArgs") or _get(call, "willContinue"))
        return reader.call(call.get("name"), call.get("args"), call.get("id"), cut=cut, extra=extra)
    if _get(part, "functionResponse") is not None:
        return result_from(part, reader)
    if isinstance(part.get("text"), str) and not part.get("thought"):
        return Text(part["text"], extra)
    return reader.extra(part)


def _get(data: Mapping[str, Any], key: str) -> Any:
    """A value under its camel or its snake case name."""
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in key)
    return data.get(key, data.get(snake))


def read_reply(response: Mapping[str, Any], reader: Reader) -> Message:
    """The parts of the first candidate; a call without arguments at the end of one that was cut off is refused."""
    reader.turn()
    candidates = sequence(response.get("candidates"), "candidates")
    candidate = mapping(candidates[0], "a candidate") if candidates else {}
    cut = _get(candidate, "finishReason") == "MAX_TOKENS"
    content = mapping(candidate.get("content") or {}, "content")
    parts = _parts_from(sequence(content.get("parts"), "parts"), reader, cut)
    if _get(candidate, "finishReason") == "MALFORMED_FUNCTION_CALL":
        cause = str(_get(candidate, "finishMessage") or "")
        parts.append(reader.refuse(RejectionCode.MALFORMED_JSON, "the vendor could not read the call", cause))
    return Message(MessageRole.ASSISTANT, with_places(parts), cut)
