"""Calls in function and parameter tags, as Qwen3-Coder writes them. A value is raw text, typed by the tool's schema.

Invariants: a value ends at the first ``</parameter>`` and loses one line break at each end, nothing else; text stays
text where the schema wants a string, and anything else must be the strict JSON of what the schema wants; the result is
judged as any other call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.byte_offsets import byte_offset
from callwright.serving.protocol.schema import check
from callwright.serving.protocol.strict_json import SURROGATE, Path, StrictJSONError, decode
from callwright.serving.protocol.validation import RAW_LIMIT, Refused, call_of
from callwright.serving.protocol.values import Rejection, RejectionCode, Tool, ToolCall

PARAMETER = ("<parameter=", "</parameter>")

_FUNCTION: Path = ("function",)
_PARAMETERS: Path = ("parameters",)
_HERE: Path = ("here",)  # of text that is not in its place
_BLANK = re.compile(r"[ \t\n\r]*+")
_HEAD = re.compile(r"<function=([^<>\n]++)>[ \t\n\r]*+")
_PARAMETER = re.compile(r"<parameter=([^<>\n]++)>")
_TAIL = re.compile(r"</function>[ \t\n\r]*+")


def is_function(body: str) -> bool:
    """Whether a call is written in tags rather than in JSON."""
    return body.lstrip(" \t\n\r").startswith("<function=")


def validate_function(body: str, tools: Sequence[Tool] | None) -> list[ToolCall] | Rejection:
    """The call of one ``<function=...>`` body. ``tools`` None: any name, and every value is text."""
    offsets: dict[Path, int] = {}  # the character at which the text of a path starts
    try:
        if half := SURROGATE.search(body):
            offsets[_HERE] = half.start()
            raise Refused(RejectionCode.LONE_SURROGATE, "half of a surrogate pair in the call", _HERE)
        name, texts = _read(body, offsets)
        tool = next((tool for tool in tools or () if tool.name == name), None)
        arguments: dict[str, Any] = {}
        for key, text in texts.items():
            try:
                arguments[key] = text if tool is None else _typed(text, tool.properties.get(key, {}))
            except StrictJSONError as error:
                raise Refused(error.code, f"{key}: {error.message}", (*_PARAMETERS, key), name) from None
        return [call_of(name, arguments, tools, _FUNCTION, _PARAMETERS)]
    except Refused as refused:
        # What is wrong inside a value, or missing, is shown where the value or the call stands.
        path = next(refused.path[:end] for end in (3, 2, 1) if refused.path[:end] in offsets)
        return Rejection(
            refused.code, refused.message, byte_offset(body, offsets[path]), refused.tool, body[:RAW_LIMIT]
        )


def _read(body: str, offsets: dict[Path, int]) -> tuple[str, dict[str, str]]:
    """The function's name and the raw text of its parameters; where each stands goes into ``offsets``."""
    head = _HEAD.match(body, _skip(body, 0))
    if head is None:
        raise _malformed(body, _skip(body, 0), "<function=NAME>", offsets)
    name = head[1]
    offsets[_PARAMETERS] = head.start()
    offsets[_FUNCTION] = head.start(1)
    texts: dict[str, str] = {}
    pos = head.end()
    while opened := _PARAMETER.match(body, pos):
        key = opened[1]
        end = body.find(PARAMETER[1], opened.end())
        if end < 0:
            raise _malformed(body, len(body), PARAMETER[1], offsets)
        offsets[(*_PARAMETERS, key)] = opened.end()
        if key in texts:
            message = f"the parameter {key[:40]} occurs twice"
            raise Refused(RejectionCode.DUPLICATE_KEY, message, (*_PARAMETERS, key), name)
        texts[key] = body[opened.end() : end].removeprefix("\n").removesuffix("\n")
        pos = _skip(body, end + len(PARAMETER[1]))
    tail = _TAIL.match(body, pos)
    if tail is None:
        raise _malformed(body, pos, "<parameter=KEY> or </function>", offsets)
    if tail.end() != len(body):
        raise _malformed(body, tail.end(), "nothing more", offsets)
    return name, texts


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """A raw value as what the schema wants. What it is not stays text, for the validator to refuse."""
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if kinds == ("string",) or not (kinds or "enum" in schema or "const" in schema):
        return text
    may_be_text = not kinds or "string" in kinds
    try:
        value = decode(text)
    except StrictJSONError as error:
        if may_be_text or error.code is RejectionCode.MALFORMED_JSON:
            return text
        raise
    if isinstance(value, str) or (may_be_text and check(value, schema) is not None):
        return text
    return value


def _skip(body: str, pos: int) -> int:
    blank = _BLANK.match(body, pos)
    assert blank is not None  # the pattern matches the empty text
    return blank.end()


def _malformed(body: str, offset: int, wanted: str, offsets: dict[Path, int]) -> Refused:
    found = repr(body[offset : offset + 20]) if offset < len(body) else "the end of the call"
    offsets[_HERE] = offset
    return Refused(RejectionCode.MALFORMED_CALL, f"expected {wanted}, found {found}", _HERE)
