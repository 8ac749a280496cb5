"""From canonical messages to token ids, in the model's own dialect and chat template.

Invariants: only markers that the dialect itself writes become marker ids, whatever users and tools say; every call is
followed by a result, one that never came by a notice that says so; what follows a sampled turn is spliced behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from callwright.serving.engines.codec import Codec
from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.protocol.conversation import Message, MessageRole
from callwright.serving.protocol.dialects import Dialect, get_dialect
from callwright.serving.protocol.rendering import record_of
from callwright.serving.protocol.values import (
    Rejection,
    ResultStatus,
    Tool,
    ToolCall,
    ToolResult,
    compact_json,
)

Turns = list[tuple[str, list[int]]]

_WHOLE = 1 << 30  # a client's result is never cut: where it does not fit, the client is told
_NESTED = ("properties", "items", "anyOf", "oneOf", "allOf", "$ref", "additionalProperties")
_VALUES: Mapping[str, Any] = {"string": "...", "integer": 1, "number": 1.5, "boolean": True, "null": None}


class Prompter:
    """Renders for one codec and one dialect. ``explain``: whether the system prompt tells of the dialect and tools."""

    def __init__(self, codec: Codec, dialect: str, *, explain: bool = True) -> None:
        self._codec = codec
        self._dialect: Dialect = get_dialect(dialect)
        self._explain = explain

    def whole(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        """The ids of a conversation, up to where the assistant speaks. Raises ApiError."""
        first = next(i for i, message in enumerate(messages) if message.role is not MessageRole.SYSTEM)
        turns: Turns = []
        system = self._protocol(tools)
        said = "\n\n".join(message.text for message in messages[:first])
        if system or said:
            behind = f"\n\n{said}" if system and said else said
            marks = self._dialect.markers(tools) if system else ()
            turns.append(("system", self._codec.protocol(system, marks, behind)))
        self._add(turns, messages[first:])
        try:
            contents: list[Mapping[str, str | Sequence[int]]] = [{"role": role, "content": ids} for role, ids in turns]
            return self._codec.prompt(contents, continues=turns[-1][0] == "assistant")
        except ValueError as error:
            raise ApiError(Problem.INVALID, str(error), "messages") from None

    def following(self, said: Message, messages: Sequence[Message], *, ended: bool) -> list[int]:
        """The ids of what comes behind a sampled turn that said this. ``ended``: it has its end token."""
        open_turn: Turns = [("assistant", [])]
        rest = list(messages)
        if rest and rest[0].role is MessageRole.TOOL:
            self._answer(open_turn, said.calls, rest.pop(0).results)
        elif said.calls:
            self._answer(open_turn, said.calls, ())
        self._add(open_turn, rest)
        (_, spoken), *turns = open_turn
        try:
            return [*spoken, *(self._codec.messages(turns, ended=ended and not spoken) if turns else ())]
        except ValueError as error:
            raise ApiError(Problem.INVALID, str(error), "messages") from None

    def _protocol(self, tools: Sequence[Tool]) -> str:
        # Without tools, plain text is what these models write anyway, unless their answers have a tag.
        if not self._explain or not (tools or self._dialect.answer_open):
            return ""
        try:
            return self._dialect.system_prompt([readable(tool) for tool in tools])
        except (ValueError, TypeError, AttributeError) as error:
            raise ApiError(Problem.INVALID, f"tools: a declaration that cannot be read: {error}", "tools") from None

    def _add(self, turns: Turns, messages: Sequence[Message]) -> None:
        number = 0
        while number < len(messages):
            message = messages[number]
            number += 1
            if message.role is MessageRole.TOOL:
                raise ApiError(Problem.INVALID, "messages: a result needs a call right before it", "messages")
            if message.role is not MessageRole.ASSISTANT:
                turns.append((str(message.role), self._codec.encode(message.text)))
                continue
            results: Sequence[ToolResult] = ()
            if number < len(messages) and messages[number].role is MessageRole.TOOL:
                results = messages[number].results
                number += 1
            self._speak(turns, message, results, last=number == len(messages))

    def _speak(self, turns: Turns, message: Message, results: Sequence[ToolResult], *, last: bool) -> None:
        """An assistant's message that was not sampled here, and what came back for its calls."""
        if not turns or turns[-1][0] != "assistant":
            turns.append(("assistant", []))
        calls = message.calls
        # A text at the end is one to be gone on with; elsewhere, one without calls was the answer.
        bare = bool(calls) or last
        text = message.text if bare else self._dialect.answer_open + message.text + self._dialect.answer_close
        if message.text:
            turns[-1][1].extend(self._codec.encode(text) if bare else self._spoken(text, [*self._answer_marks()]))
        if self._dialect.calls_per_turn == 1:
            for call in calls:
                self._speak_calls(turns, [call])
                self._answer(turns, [call], [result for result in results if result.call_id == _id(call)])
        elif calls:
            self._speak_calls(turns, calls)
            self._answer(turns, calls, results)

    def _speak_calls(self, turns: Turns, calls: Sequence[ToolCall | Rejection]) -> None:
        marks = list(self._dialect.markers([Tool(_name(call), "", {}) for call in calls]))
        for refused, group in groupby(calls, lambda call: isinstance(call, Rejection)):
            run = list(group)
            if refused:  # as it was written, but as plain text
                turns[-1][1].extend(self._codec.encode("".join(c.raw for c in run if isinstance(c, Rejection))))
                continue
            try:
                text = self._dialect.render_calls([call for call in run if isinstance(call, ToolCall)])
            except ValueError as error:
                raise ApiError(Problem.INVALID, f"messages: {error}", "messages") from None
            turns[-1][1].extend(self._spoken(text, marks))

    def _answer(self, turns: Turns, calls: Sequence[ToolCall | Rejection], results: Sequence[ToolResult]) -> None:
        """The results of one turn, in the order of its calls."""
        if not calls:
            return
        found = {result.call_id: result for result in results}
        dialect = self._dialect
        texts = []
        for call in calls:
            result = found.get(_id(call))
            failed, fields = (True, _MISSING) if result is None else _shown(result)
            texts.append(dialect.render_fields(_name(call), failed, fields, _WHOLE))
        ids = [token for piece in dialect.frame_results(texts) for token in self._codec.wrapped(*piece)]
        if dialect.result_role is None:
            turns[-1][1].extend(ids)
        else:
            turns.append((dialect.result_role, ids))

    def _spoken(self, text: str, marks: Sequence[str]) -> list[int]:
        """Ids of text of the dialect's own making: its markers count."""
        pattern = "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))
        ids: list[int] = []
        for place, part in enumerate(re.split(f"({pattern})", text)):
            ids += (self._codec.markers(part) if place % 2 else self._codec.encode(part)) if part else []
        return ids

    def _answer_marks(self) -> tuple[str, ...]:
        marks = (self._dialect.answer_open, self._dialect.answer_close)
        return marks if self._dialect.answer_open else ("<think>",)


_MISSING = {"message": "no result came for this call"}


def _shown(result: ToolResult) -> tuple[bool, Mapping[str, Any]]:
    """Whether a client's result is a failure, and its fields: those of an object, else its text."""
    fields = record_of(result.content.encode(errors="replace"))
    return result.status is ResultStatus.FAILURE, {"text": result.content} if fields is None else fields


def _id(call: ToolCall | Rejection) -> str:
    return call.id if isinstance(call, ToolCall) else call.call_id


def _name(call: ToolCall | Rejection) -> str:
    return call.name if isinstance(call, ToolCall) else call.tool or "unknown"


def readable(tool: Tool) -> Tool:
    """A client's tool as a prompt shows it: with an example, and with everything that the line of arguments leaves out.

    Raises ValueError for a schema that is none.
    """
    for name, schema in tool.properties.items():
        if not isinstance(schema, Mapping):
            raise ValueError(f"{tool.name}.{name} must be a schema")
    told = [f"{name}: {schema['description']}" for name, schema in tool.properties.items() if schema.get("description")]
    description = " ".join([tool.description.strip(), *([f"({'; '.join(told)})"] if told else [])]).strip()
    if any(word in schema for schema in tool.properties.values() for word in _NESTED):
        description += f" Schema of the arguments: {compact_json(dict(tool.input_schema))}"
    return replace(tool, description=description, example=tool.example or _example(tool.input_schema))


def _example(schema: Mapping[str, Any]) -> dict[str, Any]:
    required = schema.get("required", ())
    return {name: _value(inner) for name, inner in schema.get("properties", {}).items() if name in required}


def _value(schema: Mapping[str, Any]) -> Any:
    """A value that a simple schema allows."""
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    options = schema.get("enum") or schema.get("examples")
    if options:
        return options[0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return _example(schema)
    if kind == "array":
        return [_value(schema["items"])] if isinstance(schema.get("items"), Mapping) else []
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", _VALUES[kind]))
    return _VALUES.get(kind, "...")
