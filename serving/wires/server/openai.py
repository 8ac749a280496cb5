"""Replies of Chat Completions. Reasoning goes in ``reasoning_content``, as other servers of this wire have it."""

from __future__ import annotations

from typing import Any

from callwright.serving.protocol.conversation import Message
from callwright.serving.protocol.values import Rejection, ToolCall
from callwright.serving.wires import openai
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.server.reply import Finish, Head, StreamWriter, Usage

_FINISH = {Finish.STOP: "stop", Finish.CALLS: "tool_calls", Finish.LENGTH: "length"}


class Writer(StreamWriter):
    fmt = WireFormat.OPENAI

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._calls = 0

    def start(self) -> list[Json]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def think(self, piece: str) -> list[Json]:
        return [self._chunk({"reasoning_content": piece})] if piece else []

    def text(self, piece: str) -> list[Json]:
        return [self._chunk({"content": piece})] if piece else []

    def call(self, call: ToolCall | Rejection) -> list[Json]:
        data = {"index": self._calls, **openai.call_to(call, self.ctx)}
        self._calls += 1
        return [self._chunk({"tool_calls": [data]})]

    def end(self, finish: Finish, usage: Usage) -> list[Json]:
        last = self._top("chat.completion.chunk", [])
        return [self._chunk({}, _FINISH[finish]), {**last, "usage": _usage(usage)}]

    def whole(self, message: Message, finish: Finish, usage: Usage, thinking: str = "") -> Json:
        (data,) = openai.messages_to([message], self.ctx)[openai.HISTORY]
        if thinking:
            data["reasoning_content"] = thinking
        choice = {"index": 0, "message": data, "finish_reason": _FINISH[finish], "logprobs": None}
        return {**self._top("chat.completion", [choice]), "usage": _usage(usage)}

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        return self._top("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": finish}])

    def _top(self, kind: str, choices: list[Any]) -> Json:
        head = self.head
        return {
            "id": f"chatcmpl-{head.id}",
            "object": kind,
            "created": head.created,
            "model": head.model,
            "choices": choices,
        }


def _usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
