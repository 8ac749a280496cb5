"""Ollama: every chunk is a small message; texts grow, calls come whole and may be spread, the last may be empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping, sequence


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    message: Json = {"role": "assistant", "content": ""}
    calls: list[Any] = []
    last: Json = {}
    for chunk in chunks:
        data = mapping(chunk.get("message") or {}, "message")
        for key in ("content", "thinking"):
            if data.get(key):
                message[key] = message.get(key, "") + str(data[key])
        calls += sequence(data.get("tool_calls"), "tool_calls")
        last |= {key: value for key, value in chunk.items() if key != "message"}
    return {**last, "message": {**message, "tool_calls": calls} if calls else message}
