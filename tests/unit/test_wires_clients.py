"""The vendors' own clients talk to what is written here, over a transport that answers in their process.

They send what their users send, so requests are read as they really look; they parse what is served, whole or streamed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest
from google import genai
from google.genai import types as gt

from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.wires import (
    Message,
    MessageRole,
    ToolCall,
    messages_to,
    read_reply,
    read_stream,
    tools_to,
)
from callwright.serving.wires.base import WireFormat
from callwright.serving.wires.server import Finish, Head, ServedRequest, Usage, read_request, write_reply, write_stream
from callwright.serving.wires.server.framing import MEDIA_TYPES, framed

pytestmark = pytest.mark.unit

HEAD, USAGE = Head("abc", "tiny", 1_790_000_000), Usage(11, 7, 2, 3)
CALLS = [ToolCall("web", {"q": "ä 😀", "k": 2}), ToolCall("code", {"code_command": "ls"})]
ASKED = [
    Message.of(MessageRole.SYSTEM, "be brief"),
    Message.of(MessageRole.USER, "ask"),
]


class Served:
    """Answers every request on one wire, and keeps what it read."""

    def __init__(self, fmt: str) -> None:
        self.fmt = WireFormat(fmt)
        self.requests: list[ServedRequest] = []

    def answer(self, url: str, content: bytes) -> tuple[str, bytes]:
        request = read_request(self.fmt, json.loads(content))
        self.requests.append(request)
        if "stream" in url.rsplit("/", 1)[-1] or (request.stream and self.fmt != "gemini"):
            chunks = write_stream(self.fmt, HEAD, ["h", "i", *CALLS], Finish.CALLS, USAGE, ["hm"])
            return MEDIA_TYPES[self.fmt], "".join(framed(self.fmt, chunks)).encode()
        message = Message.of(MessageRole.ASSISTANT, "hi", *CALLS)
        reply = write_reply(self.fmt, HEAD, message, Finish.CALLS, USAGE, "hm")
        return "application/json", json.dumps(reply).encode()

    def transport(self, library: Any) -> Any:
        def handle(request: Any) -> Any:
            kind, body = self.answer(str(request.url), request.content)
            return library.Response(200, headers={"content-type": kind}, content=body)

        return library.MockTransport(handle)


def with_openai(served: Served, stream: bool) -> Any:
    client = openai.OpenAI(api_key="x", http_client=httpx2.Client(transport=served.transport(httpx2)))
    fields = {**messages_to("openai", ASKED).payload, **tools_to("openai", DEFAULT_TOOLS).payload}
    reply = client.chat.completions.create(model="tiny", stream=stream, **fields)
    return list(reply) if stream else reply


def with_responses(served: Served, stream: bool) -> Any:
    client = openai.OpenAI(api_key="x", http_client=httpx2.Client(transport=served.transport(httpx2)))
    fields = {**messages_to("responses", ASKED).payload, **tools_to("responses", DEFAULT_TOOLS).payload}
    if not stream:
        return client.responses.create(model="tiny", **fields)
    with client.responses.stream(model="tiny", **fields) as events:  # the client's own assembly runs too
        found = list(events)
        final = events.get_final_response()
    assert final.output_text == "hi"
    return found


def with_anthropic(served: Served, stream: bool) -> Any:
    client = anthropic.Anthropic(api_key="x", http_client=httpx2.Client(transport=served.transport(httpx2)))
    fields = {**messages_to("anthropic", ASKED).payload, **tools_to("anthropic", DEFAULT_TOOLS).payload}
    if not stream:
        return client.messages.create(model="tiny", max_tokens=64, **fields)
    with client.messages.stream(model="tiny", max_tokens=64, **fields) as events:
        final = events.get_final_message()
    assert [block.input for block in final.content if block.type == "tool_use"] == [c.arguments for c in CALLS]
    return list(client.messages.create(model="tiny", max_tokens=64, stream=True, **fields))


def with_gemini(served: Served, stream: bool) -> Any:
    options = gt.HttpOptions(httpx_client=httpx.Client(transport=served.transport(httpx)))
    client = genai.Client(api_key="x", http_options=options)
    fields = messages_to("gemini", ASKED).payload
    config = gt.GenerateContentConfig(
        system_instruction=fields["systemInstruction"],
        tools=[gt.Tool.model_validate(tool) for tool in tools_to("gemini", DEFAULT_TOOLS).payload["tools"]],
    )
    if stream:
        return list(client.models.generate_content_stream(model="tiny", contents=fields["contents"], config=config))
    return client.models.generate_content(model="tiny", contents=fields["contents"], config=config)


def with_ollama(served: Served, stream: bool) -> Any:
    client = ollama.Client(transport=served.transport(httpx))
    fields = {**messages_to("ollama", ASKED).payload, **tools_to("ollama", DEFAULT_TOOLS).payload}
    reply = client.chat(model="tiny", stream=stream, **fields)
    return list(reply) if stream else reply


CLIENTS: dict[str, Callable[[Served, bool], Any]] = {
    "openai": with_openai,
    "responses": with_responses,
    "anthropic": with_anthropic,
    "gemini": with_gemini,
    "ollama": with_ollama,
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fmt", CLIENTS)
def test_a_vendors_client_is_understood_and_understands(fmt: str, stream: bool) -> None:
    served = Served(fmt)
    reply = CLIENTS[fmt](served, stream)
    message = read_stream(fmt, reply) if stream else read_reply(fmt, reply)
    assert message.text == "hi"
    found = [call for call in message.calls if isinstance(call, ToolCall)]
    assert [(call.name, call.arguments) for call in found] == [(call.name, call.arguments) for call in CALLS]
    for request in served.requests:
        assert list(request.messages) == ASKED
        assert [tool.name for tool in request.tools] == [tool.name for tool in DEFAULT_TOOLS]
        assert request.tools[0].properties.keys() == DEFAULT_TOOLS[0].properties.keys()
