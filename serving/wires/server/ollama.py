"""Replies of Ollama: every chunk is a small message, and the last one says that it is done."""

from __future__ import annotations

from datetime import UTC, datetime

from callwright.serving.protocol.conversation import Message
from callwright.serving.protocol.values import Rejection, ToolCall
from callwright.serving.wires import ollama
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.server.reply import Finish, StreamWriter, Usage

_FINISH = {Finish.STOP: "stop", Finish.CALLS: "stop", Finish.LENGTH: "length"}


class Writer(StreamWriter):
    fmt = WireFormat.OLLAMA

    def start(self) -> list[Json]:
        return []

    def think(self, piece: str) -> list[Json]:
        return [self._chunk({"content": "", "thinking": piece})] if piece else []

    def text(self, piece: str) -> list[Json]:
        return [self._chunk({"content": piece})] if piece else []

    def call(self, call: ToolCall | Rejection) -> list[Json]:
        return [self._chunk({"content": "", "tool_calls": [ollama.call_to(call, self.ctx)]})]

    def end(self, finish: Finish, usage: Usage) -> list[Json]:
        return [{**self._chunk({"content": ""}), **_done(finish, usage)}]

    def whole(self, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
        (data,) = ollama.messages_to([message], self.ctx)[ollama.HISTORY]
        return {**self._chunk({**data, **({"thinking": thinking} if thinking else {})}), **_done(finish, usage)}

    def _chunk(self, message: Json) -> Json:
        created = datetime.fromtimestamp(self.head.created, UTC).isoformat().replace("+00:00", "Z")
        message = {"role": "assistant", **message}
        return {"model": self.head.model, "created_at": created, "message": message, "done": False}


def _done(finish: Finish, usage: Usage) -> Json:
    counts = {"prompt_eval_count": usage.input, "eval_count": usage.output}
    return {"done": True, "done_reason": _FINISH[finish], **counts}
