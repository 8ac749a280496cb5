"""A request's body as what is to be done: read, checked, within the limits.

Invariant: what passes here can be rendered and sampled; whatever cannot is refused before a token is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callwright.serving.engines.engine import Sampling
from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.gateway.fields import check_fields, check_tools
from callwright.serving.gateway.settings import GatewaySettings
from callwright.serving.protocol.conversation import Message, MessageRole
from callwright.serving.protocol.values import ChoiceMode, Extra, Tool, ToolChoice
from callwright.serving.wires.base import WireError, WireFormat
from callwright.serving.wires.server import ServedRequest, read_request

# The highest temperature that each vendor takes.
_HOTTEST = {WireFormat.ANTHROPIC: 1.0, WireFormat.OLLAMA: float("inf")}
_STRICT_ABOUT_LIMITS = tuple(fmt for fmt in WireFormat if fmt is not WireFormat.OLLAMA)  # which cuts without a word


@dataclass(frozen=True, slots=True)
class Ask:
    """One reply to make. ``tools`` are those that the model is shown, ``forced`` says that it must call, ``answer`` is
    the JSON Schema of what it answers otherwise (None: any text)."""

    fmt: WireFormat
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    choice: ToolChoice
    sampling: Sampling
    stream: bool
    show_usage: bool
    max_tokens: int | None
    seed: int | None
    stop: tuple[str, ...]
    answer: Mapping[str, Any] | None

    @property
    def forced(self) -> bool:
        return self.choice.mode in (ChoiceMode.ANY, ChoiceMode.NAMED)

    @property
    def one_call(self) -> bool:
        """Whether the turn may hold one call at most."""
        return self.choice.parallel is False or self.choice.mode is ChoiceMode.NAMED


def read_json(data: bytes) -> Mapping[str, Any]:
    """The object in a body. Raises ApiError."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise ApiError(Problem.INVALID, "We could not parse the JSON body of your request.") from None
    if b"\\ud" in data.lower() and re.search("[\ud800-\udfff]", json.dumps(body, ensure_ascii=False)):
        raise ApiError(Problem.INVALID, "The body holds half of a surrogate pair, which is no text.")
    if not isinstance(body, dict):
        raise ApiError(Problem.INVALID, "The body of a request is a JSON object.")
    return body


def read_ask(fmt: WireFormat, body: Mapping[str, Any], settings: GatewaySettings) -> Ask:
    """What a body asks for. Raises ApiError with the vendor's words, where it has its own."""
    check_fields(fmt, body)
    check_tools(fmt, body)
    try:
        request = read_request(fmt, body)
    except (WireError, ValueError) as error:
        raise ApiError(Problem.INVALID, str(error)) from None
    _check_limits(fmt, request, settings)
    _check_messages(request.messages)
    options = body.get("stream_options")
    told = isinstance(options, Mapping) and options.get("include_usage") is True
    return Ask(
        fmt=fmt,
        model=request.model,
        messages=tuple(request.messages),
        tools=_tools(request.tools, request.choice),
        choice=request.choice,
        sampling=_sampling(fmt, request, settings),
        stream=request.stream,
        show_usage=told or fmt is not WireFormat.OPENAI,
        max_tokens=_most(request.max_tokens, settings.max_tokens),
        seed=request.seed,
        stop=tuple(stop for stop in request.stop if stop),
        answer=request.answer,
    )


def streamed(ask: Ask, stream: bool) -> Ask:
    """The same, where the address says whether it is streamed."""
    return replace(ask, stream=stream)


def _check_limits(fmt: WireFormat, request: ServedRequest, settings: GatewaySettings) -> None:
    if len(request.messages) > settings.max_messages:
        message = f"messages: at most {settings.max_messages} messages, not {len(request.messages)}"
        raise ApiError(Problem.INVALID, message, "messages", "array_above_max_length")
    if len(request.tools) > settings.max_tools:
        message = f"tools: at most {settings.max_tools} tools, not {len(request.tools)}"
        raise ApiError(Problem.INVALID, message, "tools", "array_above_max_length")
    asked, most = request.max_tokens, settings.max_tokens
    if asked is not None and fmt in _STRICT_ABOUT_LIMITS:
        if asked < 1:
            raise ApiError(
                Problem.INVALID, f"max_tokens: at least 1, not {asked}", "max_tokens", "integer_below_min_value"
            )
        if most is not None and asked > most:
            message = f"max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens"
            raise ApiError(Problem.INVALID, message, "max_tokens", "integer_above_max_value")


def _check_messages(messages: Sequence[Message]) -> None:
    if all(message.role is MessageRole.SYSTEM for message in messages):
        raise ApiError(Problem.INVALID, "messages: at least one message is required", "messages", "empty_array")
    for message in messages:
        # Of an assistant's own extras (its thinking, a signature) the model has no need; anywhere else one is content.
        extras = () if message.role is MessageRole.ASSISTANT else message.extras
        in_results = any(result.extra is not None for result in message.results)
        if in_results or not all(_harmless(extra) for extra in extras):
            raise ApiError(Problem.INVALID, "This model reads text alone: no images, audio or files.", "messages")


def _harmless(extra: Extra) -> bool:
    return extra.data.get("type") in ("thinking", "redacted_thinking", "reasoning", "item_reference")


def _tools(tools: Sequence[Tool], choice: ToolChoice) -> tuple[Tool, ...]:
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ApiError(Problem.INVALID, f"tools: Tool names must be unique: {twice[:64]}", "tools")
    unknown = next((name for name in choice.names if name not in names), None)
    if unknown is not None:
        raise ApiError(Problem.INVALID, f"tool_choice: there is no tool {unknown[:64]!r} in tools", "tool_choice")
    if choice.mode in (ChoiceMode.ANY, ChoiceMode.NAMED) and not tools:
        raise ApiError(Problem.INVALID, "tool_choice is only allowed when tools are specified.", "tool_choice")
    if choice.mode is ChoiceMode.NONE:
        return ()
    only = choice.names if choice.mode in (ChoiceMode.ANY, ChoiceMode.AUTO) else ()
    return tuple(tool for tool in tools if not only or tool.name in only)


def _sampling(fmt: WireFormat, request: ServedRequest, settings: GatewaySettings) -> Sampling:
    temperature = settings.temperature if request.temperature is None else request.temperature
    hottest = _HOTTEST.get(fmt, 2.0)
    if request.temperature is not None and not 0 <= temperature <= hottest:
        raise ApiError(Problem.INVALID, f"temperature: from 0 to {hottest:g}, not {temperature:g}", "temperature")
    top_p = 1.0 if request.top_p is None else request.top_p
    if not 0 <= top_p <= 1:
        raise ApiError(Problem.INVALID, f"top_p: from 0 to 1, not {top_p:g}", "top_p")
    top_k = request.top_k or 0
    # A share or a number of nothing is the one likeliest token, as vendors read it.
    return Sampling(temperature, top_p, max(0, top_k)) if top_p > 0 else Sampling(0.0)


def _most(asked: int | None, limit: int | None) -> int | None:
    asked = asked if asked is None or asked > 0 else None  # Ollama: -1 and -2 are no limit
    return limit if asked is None else asked if limit is None else min(asked, limit)
