"""Messages: blocks open, grow and stop. The ``input`` of a start is a placeholder as soon as a fragment comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping, place, sequence

# The field that each delta adds to.
_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    message: Json = {"role": "assistant"}
    blocks: dict[int, Json] = {}
    fragments: dict[int, list[str]] = {}
    stopped: set[int] = set()
    for event in chunks:
        kind = event.get("type")
        index = place(event.get("index"), len(blocks) if kind == "content_block_start" else max(blocks, default=0))
        if kind == "message_start":
            message |= {**mapping(event.get("message") or {}, "message")}
        elif kind == "content_block_start":
            blocks[index] = dict(mapping(event.get("content_block"), "content_block"))
        elif kind == "content_block_delta":
            block = blocks.setdefault(index, {"type": "text", "text": ""})
            _delta(block, mapping(event.get("delta"), "delta"), fragments.setdefault(index, []))
        elif kind == "content_block_stop":
            stopped.add(index)
        elif kind == "message_delta":
            delta = mapping(event.get("delta") or {}, "delta")
            message |= {key: delta[key] for key in ("stop_reason", "stop_sequence") if delta.get(key)}
    for index, pieces in fragments.items():
        if any(pieces):
            blocks[index]["input"] = "".join(pieces)
    if set(blocks) - stopped:
        message["stop_reason"] = "max_tokens"  # the stream broke off inside a block
    return {**message, "content": [blocks[index] for index in sorted(blocks)]}


def _delta(block: Json, delta: Mapping[str, Any], fragments: list[str]) -> None:
    kind = str(delta.get("type"))
    if kind == "input_json_delta":
        fragments.append(str(delta.get("partial_json") or ""))
    elif kind == "citations_delta":
        block["citations"] = [*sequence(block.get("citations"), "citations"), delta.get("citation")]
    elif kind in _FIELDS:
        field = _FIELDS[kind]
        block[field] = str(block.get(field) or "") + str(delta.get(field) or "")
