"""Chat Completions: fragments of a call carry its index, its id only the first time, or neither behind some proxies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from callwright.serving.protocol.strict_json import StrictJSONError, decode
from callwright.serving.wires.base import Json
from callwright.serving.wires.reader import mapping, sequence

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


@dataclass(slots=True)
class _Slot:
    """One call as it arrives."""

    index: Any
    id: str | None = None
    name: str | None = None
    pieces: list[Any] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing can be added: its arguments are a whole object."""
        try:
            return isinstance(decode("".join(self.pieces)), dict)
        except (StrictJSONError, TypeError):
            return not all(isinstance(piece, str) for piece in self.pieces)

    def done(self) -> Json:
        whole = [piece for piece in self.pieces if not isinstance(piece, str)]
        arguments = whole[0] if whole else "".join(self.pieces)
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


def assemble(chunks: Iterable[Mapping[str, Any]]) -> Json:
    texts: dict[str, list[str]] = {key: [] for key in _TEXTS}
    slots: list[_Slot] = []
    finish: str | None = None
    head: Json = {}
    for chunk in chunks:
        head = head or {key: chunk[key] for key in ("id", "created", "model") if key in chunk}
        for item in sequence(chunk.get("choices"), "choices"):
            choice = mapping(item, "a choice")
            if choice.get("index", 0) != 0:
                continue
            finish = choice.get("finish_reason") or finish
            delta = mapping(choice.get("delta") or {}, "delta")
            for key in _TEXTS:
                if isinstance(delta.get(key), str):
                    texts[key].append(delta[key])
            for fragment in sequence(delta.get("tool_calls"), "tool_calls"):
                _add(slots, mapping(fragment, "a tool call"))
        # Some documents show bare deltas.
        for fragment in sequence(chunk.get("tool_calls"), "tool_calls"):
            _add(slots, mapping(fragment, "a tool call"))
    message: Json = {"role": "assistant"} | {key: "".join(pieces) for key, pieces in texts.items() if pieces}
    if slots:
        message["tool_calls"] = [slot.done() for slot in slots]
    return {**head, "choices": [{"index": 0, "message": message, "finish_reason": finish or "length"}]}


def _add(slots: list[_Slot], fragment: Mapping[str, Any]) -> None:
    function = mapping(fragment.get("function") or {}, "function")
    call_id, name, index = fragment.get("id") or None, function.get("name") or None, fragment.get("index")
    slot = _slot_of(slots, call_id, name, index)
    if slot is None:
        slot = _Slot(index)
        slots.append(slot)
    slot.id = slot.id or call_id
    slot.name = slot.name or name
    if function.get("arguments") is not None:
        slot.pieces.append(function["arguments"])


def _slot_of(slots: list[_Slot], call_id: str | None, name: str | None, index: Any) -> _Slot | None:
    """The call that a fragment continues, or None where it starts one.

    An id decides: a new one starts a call even under an index that is in use. Without one the index does; a name under
    an index whose call is complete starts a call too, and without an index the last call goes on.
    """
    if call_id is not None:
        known = [slot for slot in slots if slot.id == call_id]
        unnamed = [slot for slot in slots if slot.id is None and slot.index == index and name in (None, slot.name)]
        found = known or unnamed
        return found[-1] if found else None
    same = [slot for slot in slots if slot.index == index] if index is not None else slots[-1:]
    last = same[-1] if same else None
    if name is None:
        return last or (slots[-1] if slots and index is None else None)
    return None if last is None or last.complete or last.name not in (None, name) else last
