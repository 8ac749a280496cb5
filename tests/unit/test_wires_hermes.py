"""The wire of calls in text and the dialect of that name are one: the same blocks, in both directions."""

from __future__ import annotations

import pytest

from callwright.serving.protocol import DEFAULT_TOOLS, Parser, ToolCall, get_dialect
from callwright.serving.protocol.values import Rejection, RejectionCode

pytestmark = pytest.mark.unit

CALL = ToolCall("web", {"q": "</tool_call> ä", "k": 2})


def test_a_call_of_the_wire_is_the_dialects_text_and_its_parser_reads_it() -> None:
    text = CALL.to("hermes").payload
    assert text == get_dialect("hermes").render_call(CALL)
    parser = Parser("hermes", DEFAULT_TOOLS)
    parser.feed(text)
    assert [call.arguments for call in parser.calls] == [CALL.arguments]


@pytest.mark.parametrize("tools", [DEFAULT_TOOLS, None])
def test_the_wire_reads_function_tags_too(tools: tuple[object, ...] | None) -> None:
    text = (
        "<tool_call><function=web><parameter=q>\nA</tool_call>\n</parameter><parameter=k>\n2\n</parameter></function>"
    )
    (call,) = ToolCall.extract("hermes", f"{text}</tool_call>", tools=tools)  # type: ignore[arg-type]
    assert isinstance(call, ToolCall)
    assert call.arguments["q"] == "A</tool_call>"
    (cut,) = ToolCall.extract("hermes", text)
    assert isinstance(cut, Rejection)
    assert cut.code is RejectionCode.TRUNCATED
