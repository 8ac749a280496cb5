"""Responses: events name their item by id and place; the done events repeat what the deltas brought."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping, place

_LAST = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    items: dict[int, Json] = {}
    final: Json = {}
    status = "incomplete"  # until an event says otherwise, the stream was cut off
    for event in chunks:
        kind = str(event.get("type"))
        if kind in _LAST:
            status = _LAST[kind]
            final = dict(mapping(event.get("response") or {}, "response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = dict(mapping(event.get("item"), "item"))
            key = place(event.get("output_index"), _known(items, item.get("id"), len(items)))
            if kind.endswith("added"):
                items[key] = {**item, "content": [], "status": "in_progress"}
            else:
                before = items.get(key, {})
                arguments = item.get("arguments") or before.get("arguments")
                items[key] = {"status": "completed", **item, **({"arguments": arguments} if arguments else {})}
        else:
            _delta(_item_of(items, event), kind, event)
    output = final.get("output") or [items[key] for key in items]
    return {**final, "status": final.get("status", status), "output": output}


def _known(items: dict[int, Json], item_id: Any, default: int) -> int:
    """The place of the item with that id."""
    return next((key for key, item in items.items() if item_id is not None and item.get("id") == item_id), default)


def _item_of(items: dict[int, Json], event: Mapping[str, Any]) -> Json:
    index = place(event.get("output_index"), -1)
    return items.get(index if index in items else _known(items, event.get("item_id"), -1), {})


def _delta(item: Json, kind: str, event: Mapping[str, Any]) -> None:
    if kind == "response.function_call_arguments.delta":
        item["arguments"] = str(item.get("arguments") or "") + str(event.get("delta") or "")
    elif kind == "response.function_call_arguments.done":
        item["arguments"] = event.get("arguments") or item.get("arguments") or ""
        item["status"] = "completed"
    elif kind == "response.output_text.delta":
        # One growing text is enough: the item that is done brings the parts.
        parts = item.get("content")
        before = parts[0]["text"] if isinstance(parts, list) and parts else ""
        text = f"{before}{event.get('delta') or ''}"
        item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
