"""Responses: events name their item by id and place; the done events repeat what the deltas brought."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping

_LAST = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    items: dict[Any, Json] = {}
    final: Json = {}
    status = "incomplete"  # until an event says otherwise, the stream was cut off
    for event in chunks:
        kind = str(event.get("type"))
        if kind in _LAST:
            status = _LAST[kind]
            final = dict(mapping(event.get("response") or {}, "response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = dict(mapping(event.get("item"), "item"))
            key = event.get("output_index", item.get("id"))
            if kind.endswith("added"):
                items[key] = {**item, "status": "in_progress"}
            else:
                before = items.get(key, {})
                arguments = item.get("arguments") or before.get("arguments")
                items[key] = {"status": "completed", **item, **({"arguments": arguments} if arguments else {})}
        else:
            _delta(_item_of(items, event), kind, event)
    output = final.get("output") or [items[key] for key in items]
    return {**final, "status": final.get("status", status), "output": output}


def _item_of(items: dict[Any, Json], event: Mapping[str, Any]) -> Json:
    index = event.get("output_index")
    if index in items:
        return items[index]
    named = [item for item in items.values() if item.get("id") is not None and item.get("id") == event.get("item_id")]
    return named[-1] if named else {}


def _delta(item: Json, kind: str, event: Mapping[str, Any]) -> None:
    if kind == "response.function_call_arguments.delta":
        item["arguments"] = str(item.get("arguments") or "") + str(event.get("delta") or "")
    elif kind == "response.function_call_arguments.done":
        item["arguments"] = event.get("arguments") or item.get("arguments") or ""
        item["status"] = "completed"
    elif kind == "response.output_text.delta":
        # One growing text is enough: the item that is done brings the parts.
        content = item.setdefault("content", [])
        if not content:
            content.append({"type": "output_text", "text": "", "annotations": []})
        content[-1] = {**content[-1], "text": content[-1].get("text", "") + str(event.get("delta") or "")}
