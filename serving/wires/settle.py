"""Every call with exactly one result, before a conversation goes on any wire.

Invariants: the results of a turn stand in one message right behind their calls, in the order of the calls; a refused
call is answered by its refusal; a call without a result, or a result without a call, is an error and not a payload
that the vendor refuses later. The calls of the last message may still wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from callwright.serving.protocol.conversation import Message, MessageRole, Part
from callwright.serving.protocol.rendering import rejection_fields
from callwright.serving.protocol.values import (
    Rejection,
    ResultStatus,
    Tool,
    ToolCall,
    ToolResult,
    compact_json,
)
from callwright.serving.wires.base import WireError


def settle(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[Message]:
    """The conversation with its results in order."""
    settled: list[Message] = []
    waiting: tuple[ToolCall | Rejection, ...] = ()
    results: list[Part] = []
    for message in messages:
        if message.role is MessageRole.TOOL:
            if not waiting:
                raise WireError("results stand behind the calls that they answer")
            results += message.parts
            continue
        if waiting:
            settled.append(Message.of(MessageRole.TOOL, *in_order(waiting, _only_results(results), tools)))
        settled.append(message)
        waiting, results = message.calls if message.role is MessageRole.ASSISTANT else (), []
    if results:
        settled.append(Message.of(MessageRole.TOOL, *in_order(waiting, _only_results(results), tools)))
    return settled


def in_order(
    calls: Sequence[ToolCall | Rejection], results: Sequence[ToolResult], tools: Sequence[Tool] = ()
) -> list[ToolResult]:
    """One result a call, in the order of the calls."""
    ids = [call.id if isinstance(call, ToolCall) else call.call_id for call in calls]
    by_id = {result.call_id: result for result in results}
    if len(by_id) != len(results) or len(set(ids)) != len(ids):
        raise WireError("two calls of one turn, or two results, have one id")
    strangers = sorted(set(by_id) - set(ids))
    if strangers:
        raise WireError(f"a result answers no call of its turn: {strangers[0][:80]!r}")
    return [by_id.get(call_id) or _refused(call, tools) for call_id, call in zip(ids, calls, strict=True)]


def _refused(call: ToolCall | Rejection, tools: Sequence[Tool]) -> ToolResult:
    if isinstance(call, ToolCall):
        raise WireError(
            f"the call {call.id[:80]!r} of {call.name[:80]!r} has no result: give it one, also if cancelled"
        )
    schema = next((tool.input_schema for tool in tools if tool.name == call.tool), None)
    content = compact_json(rejection_fields(call, schema))
    return ToolResult(call.call_id, call.tool or "unknown", ResultStatus.FAILURE, content)


def _only_results(parts: Sequence[Part]) -> list[ToolResult]:
    return [part for part in parts if isinstance(part, ToolResult)]
