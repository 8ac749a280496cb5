"""Replies of Gemini: every chunk is a small response, and a call is a part like any other."""

from __future__ import annotations

from callwright.serving.protocol.conversation import Message
from callwright.serving.protocol.values import Rejection, ToolCall
from callwright.serving.wires import gemini
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.server.reply import Finish, StreamWriter, Usage

_FINISH = {Finish.STOP: "STOP", Finish.CALLS: "STOP", Finish.LENGTH: "MAX_TOKENS"}


class Writer(StreamWriter):
    fmt = WireFormat.GEMINI

    def start(self) -> list[Json]:
        return []

    def think(self, piece: str) -> list[Json]:
        return [self._chunk([{"text": piece, "thought": True}])] if piece else []

    def text(self, piece: str) -> list[Json]:
        return [self._chunk([{"text": piece}])] if piece else []

    def call(self, call: ToolCall | Rejection) -> list[Json]:
        return [self._chunk([gemini.call_to(call, self.ctx)])]

    def end(self, finish: Finish, usage: Usage) -> list[Json]:
        return [self._chunk([], _FINISH[finish], usage)]

    def whole(self, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
        parts: list[Json] = [{"text": thinking, "thought": True}] if thinking else []
        return self._chunk(parts + gemini.parts_to(message, self.ctx), _FINISH[finish], usage)

    def _chunk(self, parts: list[Json], finish: str | None = None, usage: Usage | None = None) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finish is not None:
            candidate["finishReason"] = finish
        response = {"candidates": [candidate], "modelVersion": self.head.model, "responseId": self.head.id}
        return response if usage is None else {**response, "usageMetadata": _usage(usage)}


def _usage(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cached,
        "totalTokenCount": usage.input + usage.output,
    }
