"""Replies of Messages: one block is open at a time. Thinking carries an empty signature: none of ours is checked."""

from __future__ import annotations

from callwright.serving.protocol.conversation import Message
from callwright.serving.protocol.values import Rejection, ToolCall, compact_json
from callwright.serving.wires import anthropic
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.server.reply import Finish, Head, StreamWriter, Usage

_FINISH = {Finish.STOP: "end_turn", Finish.CALLS: "tool_use", Finish.LENGTH: "max_tokens"}


class Writer(StreamWriter):
    fmt = WireFormat.ANTHROPIC

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._index = -1
        self._open = ""  # the type of the block that grows

    def start(self) -> list[Json]:
        return [{"type": "message_start", "message": self._message([], None, Usage())}]

    def think(self, piece: str) -> list[Json]:
        if not piece:
            return []
        delta = {"type": "thinking_delta", "thinking": piece}
        return [*self._enter({"type": "thinking", "thinking": "", "signature": ""}), self._delta(delta)]

    def text(self, piece: str) -> list[Json]:
        if not piece:
            return []
        return [*self._enter({"type": "text", "text": ""}), self._delta({"type": "text_delta", "text": piece})]

    def call(self, call: ToolCall | Rejection) -> list[Json]:
        block = anthropic.call_to(call, self.ctx)
        events = [*self._leave(), *self._enter({**block, "input": {}})]
        if block["input"]:
            events.append(self._delta({"type": "input_json_delta", "partial_json": compact_json(block["input"])}))
        return [*events, *self._leave()]

    def end(self, finish: Finish, usage: Usage) -> list[Json]:
        delta = {"stop_reason": self._reason(finish), "stop_sequence": self.stop_sequence}
        last = {"type": "message_delta", "delta": delta, "usage": _usage(usage)}
        return [*self._leave(), last, {"type": "message_stop"}]

    def whole(self, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
        content = [{"type": "thinking", "thinking": thinking, "signature": ""}] if thinking else []
        content += anthropic.blocks_to(message, self.ctx)
        return self._message(content, self._reason(finish), usage)

    def _reason(self, finish: Finish) -> str:
        return _FINISH[finish] if self.stop_sequence is None else "stop_sequence"

    def _enter(self, block: Json) -> list[Json]:
        if self._open == block["type"]:
            return []
        events = self._leave()
        self._index += 1
        self._open = block["type"]
        return [*events, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _leave(self) -> list[Json]:
        if not self._open:
            return []
        self._open = ""
        return [{"type": "content_block_stop", "index": self._index}]

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _message(self, content: list[Json], stop: str | None, usage: Usage) -> Json:
        return {
            "id": f"msg_{self.head.id}",
            "type": "message",
            "role": "assistant",
            "model": self.head.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": self.stop_sequence,
            "usage": _usage(usage),
        }


def _usage(usage: Usage) -> Json:
    # Tokens that were read again are counted apart on this wire.
    fresh = usage.input - usage.cached
    return {"input_tokens": fresh, "output_tokens": usage.output, "cache_read_input_tokens": usage.cached}
