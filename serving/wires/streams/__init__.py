"""Streams put together: the chunks of each vendor become the response that the vendor would have sent whole.

Invariants: how a text was cut into deltas changes nothing; no argument is invented; a call that was still open when the
stream ended is marked as cut off, and the wire's reader refuses it unless its text is a complete object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.reader import mapping, plain
from callwright.serving.wires.streams import anthropic, gemini, hermes, ollama, openai, responses

_ASSEMBLERS: dict[WireFormat, Callable[[Iterable[Mapping[str, Any]]], Json]] = {
    WireFormat.OPENAI: openai.assemble,
    WireFormat.RESPONSES: responses.assemble,
    WireFormat.ANTHROPIC: anthropic.assemble,
    WireFormat.GEMINI: gemini.assemble,
    WireFormat.OLLAMA: ollama.assemble,
    WireFormat.HERMES: hermes.assemble,
}


def assemble(fmt: WireFormat, chunks: Iterable[Any]) -> Json:
    """The whole response of a stream. Chunks are the vendor's objects, or on the wire `hermes` pieces of text too."""
    return _ASSEMBLERS[fmt](_chunk(chunk) for chunk in chunks)


def _chunk(chunk: Any) -> Mapping[str, Any]:
    chunk = plain(chunk)
    return {"text": chunk} if isinstance(chunk, str) else mapping(chunk, "a chunk")
