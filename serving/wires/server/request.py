"""A vendor's request as canonical values: conversation, tools, choice, and how to sample.

Invariant: what is read here means the same on every wire. Fields beyond these are the gateway's to read or to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callwright.serving.protocol.conversation import Message
from callwright.serving.protocol.values import Tool, ToolChoice
from callwright.serving.wires.base import WireError, WireFormat, wire_format
from callwright.serving.wires.reader import mapping, plain, sequence
from callwright.serving.wires.server.answers import answer_schema
from callwright.serving.wires.translate import choice_from, messages_from, tools_from

# Where each wire keeps its sampling fields, and what they are called there.
_PLACES: dict[WireFormat, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    WireFormat.OPENAI: ("", {"max_tokens": ("max_completion_tokens", "max_tokens"), "stop": ("stop",)}),
    WireFormat.RESPONSES: ("", {"max_tokens": ("max_output_tokens",)}),
    WireFormat.ANTHROPIC: ("", {"max_tokens": ("max_tokens",), "stop": ("stop_sequences",), "top_k": ("top_k",)}),
    WireFormat.GEMINI: (
        "generationConfig",
        {
            "max_tokens": ("maxOutputTokens", "max_output_tokens"),
            "stop": ("stopSequences", "stop_sequences"),
            "top_p": ("topP", "top_p"),
            "top_k": ("topK", "top_k"),
        },
    ),
    WireFormat.OLLAMA: ("options", {"max_tokens": ("num_predict",), "stop": ("stop",), "top_k": ("top_k",)}),
    WireFormat.HERMES: ("", {"max_tokens": ("max_tokens",), "stop": ("stop",)}),
}


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """None and empty: as the server has it. ``answer`` is the JSON Schema of an answer that is not any text."""

    model: str
    messages: Sequence[Message]
    tools: Sequence[Tool]
    choice: ToolChoice
    stream: bool
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    answer: Mapping[str, Any] | None = None


def read_request(fmt: str, body: Any) -> ServedRequest:
    """The request in a decoded body. Raises ``WireError`` with what is wrong and where."""
    wire = wire_format(fmt)
    body = mapping(plain(body), "a request")
    place, names = _PLACES[wire]
    sampling = mapping(body.get(place) or {}, place) if place else body

    def value(name: str) -> Any:
        found = (sampling.get(key) for key in names.get(name, (name,)))
        return next((item for item in found if item is not None), None)

    stop = value("stop")
    stops = (stop,) if isinstance(stop, str) else sequence(stop, "stop")
    return ServedRequest(
        model=str(body.get("model") or ""),
        messages=messages_from(wire, body),
        tools=tools_from(wire, body),
        choice=choice_from(wire, {key: item for key, item in body.items() if key != "type"}),
        # Ollama streams unless told not to; Gemini says it in the address.
        stream=bool(body.get("stream", wire is WireFormat.OLLAMA)),
        max_tokens=_whole(value("max_tokens"), "max_tokens"),
        temperature=_real(value("temperature"), "temperature"),
        top_p=_real(value("top_p"), "top_p"),
        top_k=_whole(value("top_k"), "top_k"),
        seed=_whole(value("seed"), "seed"),
        stop=tuple(map(str, stops)),
        answer=answer_schema(wire, body),
    )


def _whole(value: Any, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise WireError(f"{name} must be a whole number")


def _real(value: Any, name: str) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise WireError(f"{name} must be a number")
