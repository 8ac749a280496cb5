"""The spellings of a tool choice: one reader for those that OpenAI, Responses and Anthropic use, and what is left of a
choice on a wire without a field for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callwright.serving.protocol.values import ChoiceMode, ToolChoice
from callwright.serving.wires.base import Json, LossKind, WireError
from callwright.serving.wires.context import Context
from callwright.serving.wires.reader import Reader, mapping, sequence

_WORDS = {
    "auto": ChoiceMode.AUTO,
    "any": ChoiceMode.ANY,
    "required": ChoiceMode.ANY,
    "none": ChoiceMode.NONE,
}


def parse_choice(value: Any, parallel: bool | None, reader: Reader) -> ToolChoice:
    """The choice that a value says; no value is auto. A named choice without a name is an error, never auto."""
    if value is None:
        return ToolChoice(parallel=parallel)
    if isinstance(value, str):
        return ToolChoice(_mode(value), parallel=parallel)
    data = mapping(value, "tool_choice")
    kind = data.get("type")
    if kind == "allowed_tools":
        inner = mapping(data.get("allowed_tools", data), "allowed_tools")
        tools = sequence(inner.get("tools"), "tools")
        return ToolChoice(
            _mode(inner.get("mode")), tuple(_named(mapping(tool, "a tool"), reader) for tool in tools), parallel
        )
    if kind in ("function", "tool"):
        return ToolChoice(ChoiceMode.NAMED, (_named(data, reader),), parallel)
    return ToolChoice(_mode(kind), parallel=parallel)


def unforced_choice_to(choice: ToolChoice, ctx: Context) -> Json:
    """Auto is no field, none is no tools; nothing can be forced. Raises CapabilityError."""
    if choice.mode in (ChoiceMode.ANY, ChoiceMode.NAMED):
        raise ctx.refuse("force a call")
    if choice.names:
        raise ctx.refuse("allow a part of the tools: send only those")
    if choice.parallel is not None:
        ctx.lose(LossKind.CHOICE_PARALLEL, "this wire has no field for it")
    return {"tools": []} if choice.mode is ChoiceMode.NONE else {}


def unforced_choice_from(body: Mapping[str, Any]) -> ToolChoice:
    """What ``unforced_choice_to`` left of a choice."""
    return ToolChoice(ChoiceMode.NONE if body.get("tools") == [] else ChoiceMode.AUTO)


def _mode(word: Any) -> ChoiceMode:
    if not isinstance(word, str) or word not in _WORDS:
        raise WireError(f"there is no tool choice {str(word)[:40]!r}: one of {', '.join(_WORDS)}, or a tool by name")
    return _WORDS[word]


def _named(data: Mapping[str, Any], reader: Reader) -> str:
    name = mapping(data.get("function", data), "function").get("name")
    if not isinstance(name, str) or not name:
        raise WireError("a tool choice that names a tool needs its name")
    return reader.name(name)
