"""Text in pieces: strings, or the chunks of a chat or text completion that carries it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping, sequence


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    pieces: list[str] = []
    finish: Any = None
    for chunk in chunks:
        pieces.append(str(chunk.get("text") or ""))
        for item in sequence(chunk.get("choices"), "choices"):
            choice = mapping(item, "a choice")
            finish = choice.get("finish_reason") or finish
            delta = mapping(choice.get("delta") or {}, "delta")
            pieces.append(str(delta.get("content") or choice.get("text") or ""))
    return {"choices": [{"message": {"role": "assistant", "content": "".join(pieces)}, "finish_reason": finish}]}
