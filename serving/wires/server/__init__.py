"""The vendor's side of each wire: requests read into canonical values, replies written, whole or as a stream.

Invariants: what is written here, the client's side of this package reads back equal; every chunk is one that the
vendor's own SDK takes; a call goes out only when it is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callwright.serving.protocol.conversation import Message
from callwright.serving.wires.base import CapabilityError, Json, WireFormat, wire_format
from callwright.serving.wires.server import anthropic, gemini, ollama, openai, responses
from callwright.serving.wires.server.reply import Finish, Head, StreamWriter, Usage
from callwright.serving.wires.server.request import ServedRequest, read_request

_WRITERS: dict[WireFormat, type[StreamWriter]] = {
    WireFormat.OPENAI: openai.Writer,
    WireFormat.RESPONSES: responses.Writer,
    WireFormat.ANTHROPIC: anthropic.Writer,
    WireFormat.GEMINI: gemini.Writer,
    WireFormat.OLLAMA: ollama.Writer,
}
SERVED = tuple(_WRITERS)


def stream_writer(fmt: str, head: Head) -> StreamWriter:
    """A writer of one streamed reply."""
    wire = wire_format(fmt)
    if wire not in _WRITERS:
        raise CapabilityError(f"nothing is served on the wire {wire}: one of {', '.join(SERVED)}")
    return _WRITERS[wire](head)


def write_reply(fmt: str, head: Head, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
    """One whole reply."""
    return stream_writer(fmt, head).whole(message, finish, usage, thinking)


def write_stream(
    fmt: str, head: Head, pieces: Sequence[Any], finish: Finish, usage: Usage, thinking: Sequence[str] = ()
) -> list[Json]:
    """The chunks of a reply whose pieces, texts and calls, are all known."""
    writer = stream_writer(fmt, head)
    chunks = writer.start()
    for piece in thinking:
        chunks += writer.think(piece)
    for piece in pieces:
        chunks += writer.text(piece) if isinstance(piece, str) else writer.call(piece)
    return chunks + writer.end(finish, usage)


__all__ = [
    "SERVED",
    "Finish",
    "Head",
    "ServedRequest",
    "StreamWriter",
    "Usage",
    "read_request",
    "stream_writer",
    "write_reply",
    "write_stream",
]
