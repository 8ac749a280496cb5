"""Any conversation on any wire and back: equal in everything that the losses do not name."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from vendor_types import check_messages

from callwright.serving.protocol.values import ResultStatus, is_synthetic_id
from callwright.serving.wires import (
    LossKind,
    Message,
    MessageRole,
    NameMap,
    Text,
    ToolCall,
    ToolResult,
    WireFormat,
    messages_from,
    messages_to,
)

pytestmark = pytest.mark.unit

WORDS = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8) | st.sampled_from(
    ["</tool_call>", "<tool_call>", "<think>", '{"error":"x"}', " ", "\n", "a\n", "\nb", "<tool_response>"]
)
NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["f", "g.h", "ä", "1up", "x" * 70])
SYNTHETIC = st.builds(ToolCall, NAMES, st.dictionaries(WORDS, VALUES, max_size=2))
IDS = st.sampled_from(["call_1", "functions.f:0", "i" * 50])


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """What the assistant said, and the answers to its calls, maybe with what the user said next."""
    parts: list[Any] = draw(st.lists(st.builds(Text, WORDS) | SYNTHETIC, min_size=1, max_size=5))
    named = draw(st.lists(IDS, unique=True, max_size=3))
    for place, call_id in zip([i for i, part in enumerate(parts) if isinstance(part, ToolCall)], named, strict=False):
        parts[place] = replace(parts[place], id=call_id, synthetic_id=False)
    said = Message.of(MessageRole.ASSISTANT, *parts)
    results = [
        ToolResult(call.id, call.name, draw(st.sampled_from(ResultStatus)), draw(WORDS))
        for call in said.calls
        if isinstance(call, ToolCall)
    ]
    return [said, *([Message.of(MessageRole.TOOL, *draw(st.permutations(results)))] if results else [])]


TEXTS = st.lists(WORDS, min_size=1, max_size=2)
USER = TEXTS.map(lambda texts: [Message.of(MessageRole.USER, *texts)])
SYSTEM = TEXTS.map(lambda texts: [Message.of(MessageRole.SYSTEM, *texts)])
CONVERSATIONS = st.builds(
    lambda first, rest: [message for group in [*first, *rest] for message in group],
    st.lists(SYSTEM, max_size=2),
    st.lists(turns() | USER | SYSTEM, max_size=5),
)


def comparable(messages: list[Message], lost: set[LossKind]) -> list[Any]:
    """A conversation without what was lost. Ids made here carry nothing but their place, results stand by call."""
    places: dict[str, str] = {}

    def place(call_id: str) -> str:
        anonymous = LossKind.CALL_ID in lost or is_synthetic_id(call_id)
        return places.setdefault(call_id, f"#{len(places)}") if anonymous else call_id

    def shown(message: Message, order: list[str]) -> Any:
        role = message.role
        if LossKind.ROLE in lost and role is MessageRole.SYSTEM:
            role = MessageRole.USER
        if role is MessageRole.TOOL:
            by_id = sorted(message.results, key=lambda result: order.index(result.call_id))
            return role, [result_of(result) for result in by_id]
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        calls = [(call.name, json.dumps(call.arguments), place(call.id)) for call in message.calls]  # type: ignore[union-attr]
        if LossKind.PART_ORDER in lost:
            return role, "".join(texts), calls
        said = [part.text if isinstance(part, Text) else None for part in message.parts]
        if LossKind.TEXT_PARTS in lost:
            runs = [list(run) for _, run in groupby(said, key=lambda text: text is None)]
            said = [item for run in runs for item in (run if run[0] is None else ["".join(map(str, run))])]
        return role, said, calls

    def result_of(result: ToolResult) -> Any:
        if LossKind.RESULT_STATUS in lost:  # a failure is a success whose text says so
            failed = result.status is ResultStatus.FAILURE
            content = json.dumps({"error": result.content}, ensure_ascii=False, separators=(",", ":"))
            result = replace(result, status=ResultStatus.SUCCESS, content=content if failed else result.content)
        return place(result.call_id), result.tool, result.status, result.content

    found: list[Any] = []
    order: list[str] = []
    for message in messages:
        if message.role is MessageRole.ASSISTANT:
            order = [call.id for call in message.calls if isinstance(call, ToolCall)]
            places.clear()  # an id may come again in a later turn
        found.append(shown(message, order))
    return found


@pytest.mark.parametrize("fmt", WireFormat)
@settings(max_examples=100, deadline=None)
@given(conversation=CONVERSATIONS)
def test_any_conversation_there_and_back(fmt: WireFormat, conversation: list[Message]) -> None:
    names = NameMap(fmt)
    payload, losses = messages_to(fmt, conversation, names=names)
    check_messages(fmt, payload)
    back = messages_from(fmt, json.loads(json.dumps(payload)), names=names)
    lost = {loss.kind for loss in losses}
    event(", ".join(sorted(lost)))
    if lost & {LossKind.BOUNDARY, LossKind.TEXT, LossKind.EMPTY_MESSAGE}:
        return  # their shape is what was lost
    assert comparable(back, lost) == comparable(conversation, lost)
