"""The one validator: the parser, the sender and the executor all call this, so a call means the same to each.

Two doors lead in, for the two ways of writing a call: ``validate`` for queue bodies, ``{"type": tool, **arguments}``,
and ``validate_named`` for blocks of ``{name, arguments}``. Invariants: nothing is trimmed, coerced, filled in or
repaired; a call names a known tool and has arguments that its declaration allows; one bad call of a block refuses the
block; no input raises, every refusal is a ``Rejection``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from callwright.serving.protocol.schema import check
from callwright.serving.protocol.strict_json import Path, StrictJSONError, decode, locate
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.values import Rejection, RejectionCode, Tool, ToolCall

RAW_LIMIT = 2048  # characters of a refused text that a rejection keeps

Verdict = TypeVar("Verdict")


@dataclass(frozen=True, slots=True)
class CallKeys:
    """The two keys of a call that is written as an object."""

    name: str
    arguments: str

    def schema(self, tool: str | None, tools: Sequence[Tool] | None) -> dict[str, Any]:
        """The JSON Schema of such an object: of the named tool's call or, where it is not known, of any tool's."""
        known = next((known for known in tools or () if known.name == tool), None)
        names: dict[str, Any] = {"type": "string"} if tools is None else {"enum": [known.name for known in tools]}
        return {
            "type": "object",
            "properties": {
                self.name: names if known is None else {"const": known.name},
                self.arguments: {"type": "object"} if known is None else known.input_schema,
            },
            "required": [self.name, self.arguments],
            "additionalProperties": False,
        }


class Refused(Exception):
    """A call that is not allowed: ``path`` leads to its cause in the text. Never leaves the protocol."""

    def __init__(self, code: RejectionCode, message: str, path: Path, tool: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path = path
        self.tool = tool


def validate(
    body: str | bytes, tools: Sequence[Tool] | None = None, expected: str | None = None
) -> ToolCall | Rejection:
    """Judge one queue body ``{"type": tool, **arguments}``.

    ``tools`` are the tools known here (default: the three shipped ones). ``expected`` is the tool that the tag or the
    queue is for: a body of another type is foreign. Offsets count UTF-8 bytes of the body.
    """
    try:
        text = body if isinstance(body, str) else body.decode()
    except UnicodeDecodeError as error:
        raw = error.object[:RAW_LIMIT].decode(errors="replace")
        return Rejection(RejectionCode.MALFORMED_JSON, "the bytes are not UTF-8", error.start, expected, raw)
    known = DEFAULT_TOOLS if tools is None else tools
    return _judged(text, lambda value: _body_call(value, known, expected), expected)


def validate_named(
    text: str, keys: CallKeys, tools: Sequence[Tool] | None = None, array: bool = False
) -> list[ToolCall] | Rejection:
    """Judge a block that holds one ``{name, arguments}`` object or, with ``array``, an array of them.

    ``tools`` None: any name, and any object of arguments.
    """

    def calls(value: Any) -> list[ToolCall]:
        if not array:
            return [_named_call(value, keys, tools, ())]
        if not isinstance(value, list):
            raise Refused(RejectionCode.NOT_AN_ARRAY, "the block must be one JSON array of calls", ())
        return [_named_call(entry, keys, tools, (index,)) for index, entry in enumerate(value)]

    return _judged(text, calls, None)


def call_of(
    name: Any, arguments: Any, tools: Sequence[Tool] | None, at_name: Path = (), at_arguments: Path = ()
) -> ToolCall:
    """The call of that name with these arguments. Raises ``Refused`` with a path below the given ones."""
    if not isinstance(name, str):
        raise Refused(RejectionCode.WRONG_TYPE, f"{at_name[-1]} must be string", at_name)
    if tools is None:
        if not name.strip():
            raise Refused(RejectionCode.BLANK_STRING, f"{at_name[-1]} must not be blank", at_name)
        schema: Mapping[str, Any] = {"type": "object"}
    else:
        tool = next((tool for tool in tools if tool.name == name), None)
        if tool is None:
            message = f"there is no tool {json.dumps(name[:40], ensure_ascii=False)}"
            raise Refused(RejectionCode.UNKNOWN_TOOL, message, at_name)
        if isinstance(arguments, dict) and "type" in arguments:
            message = 'the key "type" does not belong here'
            raise Refused(RejectionCode.EXTRA_KEY, message, (*at_arguments, "type"), name)
        schema = tool.input_schema
    wrong = check(arguments, schema)
    if wrong is not None:
        raise Refused(wrong.code, wrong.message, (*at_arguments, *wrong.path), name)
    return ToolCall(name, arguments)


def _body_call(value: Any, tools: Sequence[Tool], expected: str | None) -> ToolCall:
    if not isinstance(value, dict):
        raise Refused(RejectionCode.NOT_AN_OBJECT, "the body must be one JSON object", (), expected)
    if "type" not in value:
        raise Refused(RejectionCode.MISSING_KEY, 'the key "type" is missing', (), expected)
    kind = value["type"]
    if isinstance(kind, str) and expected is not None and kind != expected:
        shown = json.dumps(kind[:40], ensure_ascii=False)
        message = f"type must be {json.dumps(expected)} here, not {shown}"
        raise Refused(RejectionCode.FOREIGN_TYPE, message, ("type",), expected)
    arguments = {key: argument for key, argument in value.items() if key != "type"}
    return call_of(kind, arguments, tools, ("type",))


def _named_call(value: Any, keys: CallKeys, tools: Sequence[Tool] | None, path: Path) -> ToolCall:
    if not isinstance(value, dict):
        raise Refused(RejectionCode.NOT_AN_OBJECT, "a call must be one JSON object", path)
    for key in (keys.name, keys.arguments):
        if key not in value:
            raise Refused(RejectionCode.MISSING_KEY, f'the key "{key}" is missing', path)
    for key in value:
        if key not in (keys.name, keys.arguments):
            shown = json.dumps(key[:40], ensure_ascii=False)
            raise Refused(RejectionCode.EXTRA_KEY, f"the key {shown} does not belong here", (*path, key))
    name, arguments = value[keys.name], value[keys.arguments]
    if not isinstance(arguments, dict):
        known = name if isinstance(name, str) and any(tool.name == name for tool in tools or ()) else None
        raise Refused(RejectionCode.WRONG_TYPE, f"{keys.arguments} must be object", (*path, keys.arguments), known)
    return call_of(name, arguments, tools, (*path, keys.name), (*path, keys.arguments))


def _judged(text: str, judge: Callable[[Any], Verdict], tool: str | None) -> Verdict | Rejection:
    """What ``judge`` says of the text's value. ``tool`` is who is told where the refusal does not know."""
    try:
        return judge(decode(text))
    except StrictJSONError as error:
        return Rejection(error.code, error.message, error.offset, tool, text[:RAW_LIMIT])
    except Refused as refused:
        return Rejection(
            refused.code, refused.message, locate(text)[refused.path], refused.tool or tool, text[:RAW_LIMIT]
        )
