"""The vendors' own SDK types as judges of what is sent: every key must be known, every value of its type.

The SDKs' request types are typed dicts that let unknown keys pass and leave iterables unread; this judge does neither.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

import ollama
from anthropic.types import MessageParam, TextBlockParam, ToolChoiceParam, ToolUnionParam
from google.genai import types as genai
from openai.types.chat import (
    ChatCompletionMessageParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionToolUnionParam,
)
from openai.types.responses import ResponseInputItemParam, ToolParam
from openai.types.responses.response_create_params import ToolChoice as ResponsesToolChoice
from typing_extensions import get_type_hints, is_typeddict

# Fields that servers know and the vendor's package does not declare.
OPENAI_SERVER_FIELDS = {"reasoning_content"}  # of servers that speak this wire
OLLAMA_SERVER_FIELDS = {"id", "tool_call_id"}


def wrong(value: Any, kind: Any, at: str = "") -> str | None:
    """How a value breaks a type, or None."""
    origin = get_origin(kind)
    if origin is not None and getattr(origin, "__name__", "") in ("Required", "NotRequired", "Annotated"):
        return wrong(value, get_args(kind)[0], at)
    if origin in (Required, NotRequired):
        return wrong(value, get_args(kind)[0], at)
    if origin in (Union, types.UnionType):
        found = [wrong(value, option, at) for option in get_args(kind)]
        return None if None in found else f"{at}: {value!r:.80} is none of {len(found)}: {'; '.join(map(str, found))}"
    if origin is Literal:
        return None if value in get_args(kind) else f"{at}: {value!r:.80} is none of {get_args(kind)}"
    if is_typeddict(kind):
        return _wrong_fields(value, kind, at)
    if kind is Any or kind is object:
        return None
    if kind is None or kind is type(None):
        return None if value is None else f"{at}: {value!r:.80} is not null"
    if kind is str or (origin is None and isinstance(kind, type)):
        fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        return None if fits else f"{at}: {value!r:.80} is no {kind.__name__}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return f"{at}: {value!r:.80} is no object"
        return next(
            (bad for key, item in value.items() if (bad := wrong(item, get_args(kind)[1], f"{at}.{key}"))), None
        )
    if isinstance(value, str) or not isinstance(value, Iterable):
        return f"{at}: {value!r:.80} is no list"
    inner = get_args(kind)[0]
    return next((bad for i, item in enumerate(value) if (bad := wrong(item, inner, f"{at}[{i}]"))), None)


def _wrong_fields(value: Any, kind: Any, at: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{at}: {value!r:.80} is no object"
    hints = get_type_hints(kind, include_extras=True)
    unknown = sorted(set(value) - set(hints))
    missing = sorted(kind.__required_keys__ - set(value))
    if unknown or missing:
        return f"{at} as {kind.__name__}: unknown {unknown}, missing {missing}"
    return next((bad for key, item in value.items() if (bad := wrong(item, hints[key], f"{at}.{key}"))), None)


def assert_is(value: Any, kind: Any) -> None:
    found = wrong(value, kind)
    assert found is None, found


def check_messages(fmt: str, payload: Mapping[str, Any]) -> None:
    """The fields of a conversation are what this vendor declares."""
    if fmt == "openai":
        assert set(payload) == {"messages"}
        for message in payload["messages"]:
            assert_is(
                {key: value for key, value in message.items() if key != "reasoning_content"}, ChatCompletionMessageParam
            )
    elif fmt == "responses":
        assert set(payload) <= {"input", "instructions"}
        for item in payload["input"]:
            assert_is(item, ResponseInputItemParam)
    elif fmt == "anthropic":
        assert set(payload) <= {"system", "messages"}
        assert_is(payload.get("system", ""), str | Iterable[TextBlockParam])
        for message in payload["messages"]:
            assert_is(message, MessageParam)
    elif fmt == "gemini":
        assert set(payload) <= {"systemInstruction", "contents"}
        for content in [*payload["contents"], payload.get("systemInstruction", {"parts": []})]:
            genai.Content.model_validate(content)
    elif fmt == "ollama":
        for message in payload["messages"]:
            _same_for_ollama(message, ollama.Message)
    else:
        assert set(payload) == {"messages"}
        assert all(set(message) == {"role", "content"} for message in payload["messages"])
        assert all(isinstance(message["content"], str) for message in payload["messages"])


def check_tools(fmt: str, payload: Mapping[str, Any]) -> None:
    for tool in payload["tools"]:
        if fmt in ("openai", "hermes"):
            assert_is(tool, ChatCompletionToolUnionParam)
        elif fmt == "responses":
            assert_is(tool, ToolParam)
        elif fmt == "anthropic":
            assert_is(tool, ToolUnionParam)
        elif fmt == "gemini":
            genai.Tool.model_validate(tool)
        else:
            ollama.Tool.model_validate(tool)


def check_choice(fmt: str, payload: Mapping[str, Any]) -> None:
    if fmt == "openai":
        assert_is(payload["tool_choice"], ChatCompletionToolChoiceOptionParam)
    elif fmt == "responses":
        assert_is(payload["tool_choice"], ResponsesToolChoice)
    elif fmt == "anthropic":
        assert_is(payload["tool_choice"], ToolChoiceParam)
    elif fmt == "gemini":
        genai.ToolConfig.model_validate(payload["toolConfig"])
    else:
        assert payload in ({}, {"tools": []})


def _same_for_ollama(message: Mapping[str, Any], kind: Any) -> None:
    """The package's model keeps everything that was sent, but for fields that only the server declares."""
    kept = kind.model_validate(message).model_dump(exclude_unset=True)
    assert kept == _without_server_fields(message)


def _without_server_fields(value: Any) -> Any:
    if isinstance(value, Mapping):
        calls = value.get("tool_calls")
        kept = {key: item for key, item in value.items() if key not in OLLAMA_SERVER_FIELDS}
        if calls:
            kept["tool_calls"] = [{k: v for k, v in call.items() if k not in OLLAMA_SERVER_FIELDS} for call in calls]
        return kept
    return value
