"""How the chunks of a stream stand in the body of an HTTP answer: server-sent events, or a line of JSON each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from callwright.serving.protocol.values import compact_json
from callwright.serving.wires.base import Json, WireFormat

MEDIA_TYPES = {
    WireFormat.OPENAI: "text/event-stream",
    WireFormat.RESPONSES: "text/event-stream",
    WireFormat.ANTHROPIC: "text/event-stream",
    WireFormat.GEMINI: "text/event-stream",  # asked for with alt=sse
    WireFormat.OLLAMA: "application/x-ndjson",
}
_NAMED = (WireFormat.RESPONSES, WireFormat.ANTHROPIC)  # events carry their type beside the data too
_DONE = "data: [DONE]\n\n"


def frame(fmt: WireFormat, chunk: Json) -> str:
    """The text of one chunk."""
    data = compact_json(chunk)
    if fmt is WireFormat.OLLAMA:
        return f"{data}\n"
    return f"event: {chunk['type']}\ndata: {data}\n\n" if fmt in _NAMED else f"data: {data}\n\n"


def ending(fmt: WireFormat) -> str:
    """The text behind the last chunk: empty but where the wire marks the end."""
    return _DONE if fmt is WireFormat.OPENAI else ""


def framed(fmt: WireFormat, chunks: Iterable[Json]) -> Iterator[str]:
    """The text of every chunk, and of the end where the wire marks one."""
    for chunk in chunks:
        yield frame(fmt, chunk)
    if ending(fmt):
        yield ending(fmt)
