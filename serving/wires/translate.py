"""The public functions: one table of wires, and every translation through it.

Invariant: nothing outside this file branches on a format, and nothing in it but this table does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from callwright.serving.protocol.conversation import Message, MessageRole, Part, Text
from callwright.serving.protocol.values import Extra, Rejection, Tool, ToolCall, ToolChoice, ToolResult
from callwright.serving.wires import anthropic, gemini, hermes, ollama, openai, responses
from callwright.serving.wires.base import Json, Translation, WireFormat, wire_format
from callwright.serving.wires.context import Context
from callwright.serving.wires.names import NameMap
from callwright.serving.wires.reader import Reader, mapping, plain
from callwright.serving.wires.settle import in_order, settle
from callwright.serving.wires.streams import assemble


class Wire(Protocol):
    """What every wire's module has."""

    HISTORY: str

    def tool_to(self, tool: Tool, ctx: Context) -> Json: ...
    def tool_from(self, data: Any, reader: Reader) -> Tool: ...
    def tools_to(self, tools: Sequence[Tool], ctx: Context) -> Json: ...
    def tools_from(self, body: Mapping[str, Any], reader: Reader) -> list[Tool]: ...
    def choice_to(self, choice: ToolChoice, ctx: Context) -> Json: ...
    def choice_from(self, body: Mapping[str, Any], reader: Reader) -> ToolChoice: ...
    def call_to(self, call: ToolCall | Rejection, ctx: Context) -> Any: ...
    def result_to(self, result: ToolResult, ctx: Context) -> Any: ...
    def result_from(self, data: Any, reader: Reader) -> ToolResult: ...
    def messages_to(self, messages: Sequence[Message], ctx: Context) -> Json: ...
    def messages_from(self, body: Mapping[str, Any], reader: Reader) -> list[Message]: ...
    def read_reply(self, response: Mapping[str, Any], reader: Reader) -> Message: ...


WIRES: dict[WireFormat, Wire] = {
    WireFormat.OPENAI: openai,
    WireFormat.RESPONSES: responses,
    WireFormat.ANTHROPIC: anthropic,
    WireFormat.GEMINI: gemini,
    WireFormat.OLLAMA: ollama,
    WireFormat.HERMES: hermes,
}


def tool_to(fmt: str, tool: Tool, *, names: NameMap | None = None) -> Translation:
    ctx = Context(wire_format(fmt), names)
    return ctx.done(WIRES[ctx.fmt].tool_to(tool, ctx))


def tool_from(fmt: str, data: Any, *, names: NameMap | None = None) -> Tool:
    reader = Reader(wire_format(fmt), names=names)
    return WIRES[reader.fmt].tool_from(plain(data), reader)


def tools_to(fmt: str, tools: Sequence[Tool], *, names: NameMap | None = None) -> Translation:
    """The request's fields for a whole list of tools."""
    wire = wire_format(fmt)
    ctx = Context(wire, names or NameMap(wire, [tool.name for tool in tools]))
    return ctx.done(WIRES[ctx.fmt].tools_to(tools, ctx))


def tools_from(fmt: str, body: Any, *, names: NameMap | None = None) -> list[Tool]:
    reader = Reader(wire_format(fmt), names=names)
    return WIRES[reader.fmt].tools_from(mapping(plain(body), "a request"), reader)


def choice_to(
    fmt: str, choice: ToolChoice, *, names: NameMap | None = None, model: str = "", thinking: bool = False
) -> Translation:
    ctx = Context(wire_format(fmt), names, model, thinking)
    return ctx.done(WIRES[ctx.fmt].choice_to(choice, ctx))


def choice_from(fmt: str, fields: Any, *, names: NameMap | None = None) -> ToolChoice:
    """From a request's fields, or from the bare value of ``tool_choice``."""
    reader = Reader(wire_format(fmt), names=names)
    fields = plain(fields)
    if isinstance(fields, str) or (isinstance(fields, Mapping) and "type" in fields):
        fields = {"tool_choice": fields}
    return WIRES[reader.fmt].choice_from(mapping(fields, "a request"), reader)


def call_to(fmt: str, call: ToolCall | Rejection, *, names: NameMap | None = None) -> Translation:
    ctx = Context(wire_format(fmt), names)
    ctx.know((call,))
    return ctx.done(WIRES[ctx.fmt].call_to(call, ctx))


def result_to(fmt: str, result: ToolResult, *, names: NameMap | None = None) -> Translation:
    ctx = Context(wire_format(fmt), names)
    return ctx.done(WIRES[ctx.fmt].result_to(result, ctx))


def result_from(
    fmt: str, data: Any, calls: Sequence[ToolCall | Rejection] = (), *, names: NameMap | None = None
) -> ToolResult:
    """One result block. With ``calls`` it answers one of them; without, it has what id and name the wire gives it."""
    reader = Reader(wire_format(fmt), names=names, lone=not calls)
    reader.expect(calls)
    return WIRES[reader.fmt].result_from(plain(data), reader)


def messages_to(
    fmt: str,
    messages: Sequence[Message],
    *,
    names: NameMap | None = None,
    model: str = "",
    signature_bypass: bool = False,
) -> Translation:
    """The request's fields for a whole conversation.

    ``model`` is the one that will read it: extras of another are dropped with a note. ``signature_bypass`` writes
    Gemini's documented stand-in where a call of another vendor has no thought signature.
    """
    ctx = Context(wire_format(fmt), names, model, signature_bypass=signature_bypass)
    return _write(messages, ctx)


def messages_from(fmt: str, body: Any, *, names: NameMap | None = None, model: str = "") -> list[Message]:
    """The conversation in a request's fields. ``model`` is the one whose extras it holds."""
    reader = Reader(wire_format(fmt), names=names, model=model)
    return WIRES[reader.fmt].messages_from(mapping(plain(body), "a request"), reader)


def echo(
    fmt: str,
    text: str,
    calls: Sequence[ToolCall | Rejection],
    extras: Sequence[Extra] = (),
    *,
    names: NameMap | None = None,
    model: str = "",
    signature_bypass: bool = False,
) -> Translation:
    """The messages that repeat an assistant's turn: a list, to be added to the history before ``envelope``'s."""
    parts: list[Part] = [Text(text)] if text else []
    parts += calls
    for extra in sorted(extras, key=lambda extra: extra.place):
        parts.insert(extra.place, extra)
    ctx = Context(wire_format(fmt), names, model, signature_bypass=signature_bypass)
    ctx.know(tuple(calls))
    payload = WIRES[ctx.fmt].messages_to([Message.of(MessageRole.ASSISTANT, *parts)], ctx)
    return ctx.done(payload[WIRES[ctx.fmt].HISTORY])


def envelope(
    fmt: str,
    calls: Sequence[ToolCall | Rejection],
    results: Sequence[ToolResult],
    *,
    text: str = "",
    tools: Sequence[Tool] = (),
    names: NameMap | None = None,
) -> Translation:
    """The messages that answer a turn's calls: a list, in the order of the calls whatever that of the results.

    A refused call is answered by its refusal, with the schema of its tool where ``tools`` has it. ``text`` is what the
    user says next, where the vendor wants it.
    """
    ctx = Context(wire_format(fmt), names)
    ctx.know(tuple(calls))
    messages = [Message.of(MessageRole.TOOL, *in_order(calls, results, tools))] if calls or results else []
    if text:
        messages.append(Message.of(MessageRole.USER, text))
    payload = WIRES[ctx.fmt].messages_to(messages, ctx)
    return ctx.done(payload[WIRES[ctx.fmt].HISTORY])


def read_reply(
    fmt: str,
    response: Any,
    *,
    tools: Sequence[Tool] | None = None,
    names: NameMap | None = None,
    model: str = "",
) -> Message:
    """The assistant's message in one response; ``calls`` holds refused calls too, in order."""
    reader = Reader(wire_format(fmt), tools, names, model)
    response = plain(response)
    # Only where calls are text may a reply be nothing but its text.
    response = {"content": response} if isinstance(response, str) else mapping(response, "a reply")
    return WIRES[reader.fmt].read_reply(response, reader)


def read_stream(
    fmt: str,
    chunks: Iterable[Any],
    *,
    tools: Sequence[Tool] | None = None,
    names: NameMap | None = None,
    model: str = "",
) -> Message:
    """The same from a stream of the vendor's chunks."""
    return read_reply(fmt, assemble(wire_format(fmt), chunks), tools=tools, names=names, model=model)


def _write(messages: Sequence[Message], ctx: Context) -> Translation:
    settled = settle(messages)
    for message in settled:
        ctx.know(message.calls)
    return ctx.done(WIRES[ctx.fmt].messages_to(settled, ctx))
