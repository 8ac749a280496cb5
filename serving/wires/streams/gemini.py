"""Gemini: every chunk is a small response; texts grow, calls come whole, also in chunks of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping, sequence


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    parts: list[Json] = []
    ends: Json = {}
    for chunk in chunks:
        for item in sequence(chunk.get("candidates"), "candidates"):
            candidate = mapping(item, "a candidate")
            if candidate.get("index", 0) != 0:
                continue
            for key in ("finishReason", "finish_reason", "finishMessage", "finish_message"):
                if candidate.get(key):
                    ends[key] = candidate[key]
            content = mapping(candidate.get("content") or {}, "content")
            for part in sequence(content.get("parts"), "parts"):
                _add(parts, dict(mapping(part, "a part")))
    return {"candidates": [{"content": {"role": "model", "parts": parts}, **ends}]}


def _add(parts: list[Json], part: Json) -> None:
    """Text goes on where the part before is text of the same sort; a signature ends a text and stays with it."""
    last = parts[-1] if parts else {}
    same = set(part) <= {"text", "thought", "thoughtSignature"} and set(last) <= {"text", "thought"}
    texts = [text for text in (last.get("text"), part.get("text")) if isinstance(text, str)]
    if same and len(texts) == 2 and part.get("thought") == last.get("thought"):
        parts[-1] = {**last, **part, "text": "".join(texts)}
    else:
        parts.append(part)
