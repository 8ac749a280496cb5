"""The wire of models that write calls as text: a chat template's messages, calls in ``<tool_call>`` blocks.

Invariants: what a call and the block of a result look like is the dialect's to say (``protocol/dialects/hermes.py``);
no JSON that is written here holds a literal ``<``, so nothing inside it can be taken for a marker.
A role message of a result is bare JSON, because templates put ``<tool_response>`` around it; ``result_to`` gives the
whole block, for prompts without a template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.byte_offsets import byte_offset
from callwright.serving.protocol.conversation import Message, MessageRole, Part, Text, with_places
from callwright.serving.protocol.dialects import Hermes
from callwright.serving.protocol.function_tags import is_function
from callwright.serving.protocol.rendering import marker_safe_json
from callwright.serving.protocol.scanner import Scanner, Token, TokenKind
from callwright.serving.protocol.strict_json import StrictJSONError, decode
from callwright.serving.protocol.values import (
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
from callwright.serving.wires import openai
from callwright.serving.wires.base import Json, LossKind, WireError
from callwright.serving.wires.choices import unforced_choice_from, unforced_choice_to
from callwright.serving.wires.context import Context
from callwright.serving.wires.reader import Reader, mapping, sequence
from callwright.serving.wires.schemas import schema_of

HISTORY = "messages"
_DIALECT = Hermes()
_BLOCKS = {block.name: block for block in _DIALECT.blocks(None)}
CALL, THINK = _BLOCKS["tool_call"], _BLOCKS["think"]


def tool_to(tool: Tool, ctx: Context) -> Json:
    """The nested function that templates of this family were trained on."""
    ctx.keep_private(tool)
    function = {"name": ctx.name(tool.name), "description": tool.description, "parameters": schema_of(tool)}
    return {"type": "function", "function": function}


def tool_from(data: Any, reader: Reader) -> Tool:
    return openai.tool_from(data, reader)


def tools_to(tools: Sequence[Tool], ctx: Context) -> Json:
    return {"tools": [tool_to(tool, ctx) for tool in tools]}


def tools_from(body: Mapping[str, Any], reader: Reader) -> list[Tool]:
    return openai.tools_from(body, reader)


def choice_to(choice: ToolChoice, ctx: Context) -> Json:
    """Auto is no field, none is no tools; a text cannot force anything."""
    return unforced_choice_to(choice, ctx)


def choice_from(body: Mapping[str, Any], reader: Reader) -> ToolChoice:
    return unforced_choice_from(body)


def call_to(call: ToolCall | Rejection, ctx: Context) -> str:
    call_id = call.id if isinstance(call, ToolCall) else call.call_id
    if ctx.own_id(call_id):
        ctx.lose(LossKind.CALL_ID, "a call in text has no id")
    if isinstance(call, Rejection):
        return f"{CALL.opener}\n{call.raw.replace('<', chr(92) + 'u003c')}\n{CALL.closer}"
    ctx.own(call.extra)
    return _DIALECT.render_call(ToolCall(ctx.call_name(call), call.arguments))


def result_to(result: ToolResult, ctx: Context) -> str:
    return "".join("".join(piece) for piece in _DIALECT.frame_results([marker_safe_json(_response(result, ctx))]))


def _response(result: ToolResult, ctx: Context) -> Json:
    ctx.own(result.extra)
    return {"name": ctx.name(result.tool), "content": ctx.flagless(result)}


def result_from(data: Any, reader: Reader) -> ToolResult:
    """A result's JSON, bare or in its block; any other text answers the next open call."""
    content = str(data.get("content") or "") if isinstance(data, Mapping) else str(data)
    text = content.strip().removeprefix(_DIALECT.result_open.strip()).removesuffix(_DIALECT.result_close.strip())
    try:
        value = decode(text)
    except StrictJSONError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "content" not in value:
        return reader.result(content)
    inner = value["content"]
    # No template of this family has a field for a failure, but a tool's answer may carry one.
    failed = value.get("status") == ResultStatus.FAILURE
    return reader.result(inner if isinstance(inner, str) else compact_json(inner), failed=failed, tool=value["name"])


def messages_to(messages: Sequence[Message], ctx: Context) -> Json:
    return {HISTORY: [data for message in messages for data in _message_to(message, ctx)]}


def _message_to(message: Message, ctx: Context) -> list[Json]:
    if message.role is MessageRole.TOOL:
        return [{"role": "tool", "content": marker_safe_json(_response(result, ctx))} for result in message.results]
    pieces: list[str] = []
    runs = _runs(message, ctx)
    for (kind, body), (before, _) in zip(runs, [(None, ""), *runs], strict=False):
        if before is not None and ToolCall in (kind, before):
            pieces.append("\n")  # a block stands on lines of its own
        pieces.append(_plain(body, ctx) if kind is Text and message.role is MessageRole.ASSISTANT else body)
    return [{"role": str(message.role), "content": "".join(pieces)}]


def _runs(message: Message, ctx: Context) -> list[tuple[type, str]]:
    """What stands in a message, by kind. Neighbouring texts are one, so that no marker comes about between them."""
    runs: list[tuple[type, str]] = []
    for part in message.parts:
        if isinstance(part, Text):
            ctx.own(part.extra)
            text = part.text
            if runs and runs[-1][0] is Text:
                ctx.lose(LossKind.TEXT_PARTS, "texts that follow each other are one")
                text = runs.pop()[1] + text
            runs.append((Text, text))
        elif isinstance(part, ToolCall | Rejection):
            runs.append((ToolCall, call_to(part, ctx)))
        elif isinstance(part, Extra) and (thought := ctx.own(part).get("think")):
            runs.append((Extra, str(thought)))
    return runs


def _plain(text: str, ctx: Context) -> str:
    """What an assistant said, unable to open a block."""
    for opener in (CALL.opener, THINK.opener):
        if opener in text:
            ctx.lose(LossKind.TEXT, f"{opener} in plain text would open a block: its < is written &lt;")
            text = text.replace(opener, f"&lt;{opener[1:]}")
    return text


def messages_from(body: Mapping[str, Any], reader: Reader) -> list[Message]:
    messages: list[Message] = []
    for item in sequence(body.get(HISTORY), HISTORY):
        data = mapping(item, "a message")
        role, content = data.get("role"), str(data.get("content") or "")
        if role == "tool":
            result = result_from(content, reader)
            if messages and messages[-1].role is MessageRole.TOOL:
                messages[-1] = Message.of(MessageRole.TOOL, *messages[-1].parts, result)
            else:
                messages.append(Message.of(MessageRole.TOOL, result))
        elif role == "assistant":
            messages.append(_assistant(content, reader, cut=False))
        elif role in ("system", "user"):
            messages.append(Message.of(MessageRole(role), *([content] if content else [])))
        else:
            raise WireError(f"there is no message role {str(role)[:40]!r} on this wire")
    return messages


def _assistant(text: str, reader: Reader, cut: bool) -> Message:
    reader.turn()
    scanner = Scanner([CALL, THINK])
    parts: list[Part] = []
    for token in (*scanner.feed(text), *scanner.finish()):
        parts += _token_parts(token, reader)
    return Message(MessageRole.ASSISTANT, with_places(_joined(parts)), cut)


def _token_parts(token: Token, reader: Reader) -> list[Part]:
    if token.block is THINK:
        # Reasoning is kept as it stands, markers included, and calls in it are not run.
        text = {TokenKind.OPEN: THINK.opener, TokenKind.CLOSE: THINK.closer}.get(token.kind, token.text)
        return [reader.extra({"think": "" if token.kind is TokenKind.UNCLOSED else text})]
    if token.kind is TokenKind.TEXT:
        return [Text(token.text)]
    if token.block is CALL and token.kind is TokenKind.CLOSE:
        return [_call(token.text, reader)]
    if token.block is CALL and token.kind is TokenKind.UNCLOSED:
        return [_cut_off(RejectionCode.TRUNCATED, f"the text ended before {CALL.closer}", token.text, reader)]
    if token.block is CALL and token.kind is TokenKind.OVERFLOW:
        return [_cut_off(RejectionCode.TOO_LARGE, f"too much text before {CALL.closer}", token.text, reader)]
    return []


def _cut_off(code: RejectionCode, message: str, body: str, reader: Reader) -> Rejection:
    return reader.refuse(code, message, body, byte_offset(body, len(body)))


def _call(body: str, reader: Reader) -> ToolCall | Rejection:
    # In function tags the kind of a value is known from its tool alone; everything else is the reader's to judge.
    verdict = _DIALECT.read_calls(CALL, body, reader.tools if is_function(body) else None)
    if isinstance(verdict, Rejection):
        return reader.refuse(verdict.code, verdict.message, body, verdict.offset)
    (call,) = verdict
    return reader.call(call.name, call.arguments)


def _joined(parts: list[Part]) -> list[Part]:
    """Neighbouring pieces of text as one, of reasoning as one; a line break around a block belongs to the block."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + part.text)
        elif isinstance(part, Extra) and isinstance(last, Extra):
            joined[-1] = Extra(last.wire, {"think": last.data["think"] + part.data["think"]}, last.model)
        else:
            joined.append(part)
    result: list[Part] = []
    for part, before, after in zip(joined, [None, *joined], [*joined[1:], None], strict=False):
        if isinstance(part, Text):
            text = part.text.removesuffix("\n") if isinstance(after, ToolCall | Rejection) else part.text
            text = text.removeprefix("\n") if isinstance(before, ToolCall | Rejection) else text
            part = Text(text)
        if not isinstance(part, Text) or part.text:
            result.append(part)
    return result


def read_reply(response: Mapping[str, Any], reader: Reader) -> Message:
    """The text of a reply: a role message, or a completion's first choice."""
    cut = False
    content: Any = response
    if "choices" in response:
        choices = sequence(response["choices"], "choices")
        choice = mapping(choices[0], "a choice") if choices else {}
        cut = choice.get("finish_reason") == "length"
        content = choice.get("message") or choice.get("text")
    if isinstance(content, Mapping):
        content = content.get("content")
    if not isinstance(content, str | None):
        raise WireError(f"a reply is text, not {type(content).__name__}")
    return _assistant(content or "", reader, cut)
