"""Replies of Responses: items open, grow and are done, every event numbered; the last one repeats the whole."""

from __future__ import annotations

from typing import Any

from callwright.serving.protocol.conversation import Message, Text
from callwright.serving.protocol.values import Extra, Rejection, ToolCall
from callwright.serving.wires import responses
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.server.reply import Finish, Head, StreamWriter, Usage

# Of an item that grows: its delta and done events, and the field and type of its part.
_GROWING = {"message": ("output_text", "output_text"), "reasoning": ("reasoning_text", "reasoning_text")}


class Writer(StreamWriter):
    fmt = WireFormat.RESPONSES

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._number = 0
        self._items: list[Json] = []
        self._open: Json | None = None  # the item that grows, and
        self._pieces: list[str] = []  # its text so far

    def start(self) -> list[Json]:
        response = self._response("in_progress", None)
        return [self._event("created", response=response), self._event("in_progress", response=response)]

    def think(self, piece: str) -> list[Json]:
        return self._grow("reasoning", piece)

    def text(self, piece: str) -> list[Json]:
        return self._grow("message", piece)

    def call(self, call: ToolCall | Rejection) -> list[Json]:
        events = self._close()
        item = self._call_item(call)
        place = {"output_index": len(self._items), "item_id": item["id"]}
        bare = {**item, "arguments": "", "status": "in_progress"}
        events.append(self._event("output_item.added", output_index=place["output_index"], item=bare))
        events.append(self._event("function_call_arguments.delta", **place, delta=item["arguments"]))
        events.append(self._event("function_call_arguments.done", **place, arguments=item["arguments"]))
        self._items.append(item)
        events.append(self._event("output_item.done", output_index=place["output_index"], item=item))
        return events

    def end(self, finish: Finish, usage: Usage) -> list[Json]:
        events = self._close()
        status = "incomplete" if finish is Finish.LENGTH else "completed"
        return [*events, self._event(status, response=self._response(status, usage))]

    def whole(self, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
        if thinking:
            self._items.append(self._item("reasoning", thinking))
        for part in message.parts:
            if isinstance(part, Text):
                self._items.append(self._item("message", part.text))
            elif isinstance(part, Extra):
                self._items += [own] if (own := self.ctx.own(part)) else []
            elif isinstance(part, ToolCall | Rejection):
                self._items.append(self._call_item(part))
        return self._response("incomplete" if finish is Finish.LENGTH else "completed", usage)

    def _grow(self, kind: str, piece: str) -> list[Json]:
        if not piece:
            return []
        events: list[Json] = []
        event, part_type = _GROWING[kind]
        if self._open is None or self._open["type"] != kind:
            events += self._close()
            self._open = self._item(kind, None)
            events.append(self._event("output_item.added", output_index=len(self._items), item=self._open))
            events.append(self._event("content_part.added", **self._place(), part=_part(part_type, "")))
        self._pieces.append(piece)
        extra: Json = {"logprobs": []} if kind == "message" else {}
        events.append(self._event(f"{event}.delta", **self._place(), delta=piece, **extra))
        return events

    def _close(self) -> list[Json]:
        """The events that finish the item that grows, if one does."""
        if self._open is None:
            return []
        kind, text = self._open["type"], "".join(self._pieces)
        event, part_type = _GROWING[kind]
        extra: Json = {"logprobs": []} if kind == "message" else {}
        item = {**self._item(kind, text), "id": self._open["id"]}
        events = [
            self._event(f"{event}.done", **self._place(), text=text, **extra),
            self._event("content_part.done", **self._place(), part=_part(part_type, text)),
            self._event("output_item.done", output_index=len(self._items), item=item),
        ]
        self._items.append(item)
        self._open, self._pieces = None, []
        return events

    def _place(self) -> Json:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._items), "content_index": 0}

    def _item(self, kind: str, text: str | None) -> Json:
        """A message or reasoning item; without text one that has just begun."""
        content = [] if text is None else [_part(_GROWING[kind][1], text)]
        status = "in_progress" if text is None else "completed"
        if kind == "reasoning":
            return {"type": kind, "id": self._id("rs"), "summary": [], "content": content, "status": status}
        return {"type": kind, "id": self._id("msg"), "role": "assistant", "content": content, "status": status}

    def _call_item(self, call: ToolCall | Rejection) -> Json:
        return {"id": self._id("fc"), "status": "completed", **responses.call_to(call, self.ctx)}

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self.head.id}_{len(self._items)}"

    def _event(self, kind: str, **fields: Any) -> Json:
        event = {"type": f"response.{kind}", "sequence_number": self._number, **fields}
        self._number += 1
        return event

    def _response(self, status: str, usage: Usage | None) -> Json:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": f"resp_{self.head.id}",
            "object": "response",
            "created_at": self.head.created,
            "model": self.head.model,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "instructions": None,
            "metadata": {},
            "output": list(self._items),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": None if usage is None else _usage(usage),
        }


def _part(kind: str, text: str) -> Json:
    return {"type": kind, "text": text, **({"annotations": [], "logprobs": []} if kind == "output_text" else {})}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
