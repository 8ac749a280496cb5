"""The one validator: the parser, the sender and the executor all call this, so a body means the same to each.

Invariants: nothing is trimmed, coerced, filled in or repaired; what is accepted is exactly one JSON object with the
``type`` of a known tool and arguments that its declaration allows; no input raises, every refusal is a ``Rejection``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from callwright.serving.protocol.schema import check
from callwright.serving.protocol.strict_json import Path, StrictJSONError, decode, locate
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.values import Rejection, RejectionCode, Tool, ToolCall

RAW_LIMIT = 2048  # characters of a refused text that a rejection keeps


def validate(
    body: str | bytes, tools: Sequence[Tool] | None = None, expected: str | None = None
) -> ToolCall | Rejection:
    """Judge one queue body ``{"type": tool, **arguments}``.

    ``tools`` are the tools known here (default: the three shipped ones). ``expected`` is the tool that the tag or the
    queue is for: a body of another type is foreign. Offsets count characters of the decoded text.
    """
    try:
        text = body if isinstance(body, str) else body.decode()
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        raw = error.object[:RAW_LIMIT].decode(errors="replace")
        return Rejection(RejectionCode.MALFORMED_JSON, "the bytes are not UTF-8", len(before), expected, raw)
    try:
        value = decode(text)
    except StrictJSONError as error:
        return Rejection(error.code, error.message, error.offset, expected, text[:RAW_LIMIT])

    def reject(code: RejectionCode, message: str, path: Path, tool: str | None) -> Rejection:
        return Rejection(code, message, locate(text)[path], tool, text[:RAW_LIMIT])

    if not isinstance(value, dict):
        return reject(RejectionCode.NOT_AN_OBJECT, "the body must be one JSON object", (), expected)
    if "type" not in value:
        return reject(RejectionCode.MISSING_KEY, 'the key "type" is missing', (), expected)
    kind = value["type"]
    if not isinstance(kind, str):
        return reject(RejectionCode.WRONG_TYPE, "type must be string", ("type",), expected)
    if expected is not None and kind != expected:
        message = f"type must be {json.dumps(expected)} here, not {_short(kind)}"
        return reject(RejectionCode.FOREIGN_TYPE, message, ("type",), expected)
    tool = next((tool for tool in (DEFAULT_TOOLS if tools is None else tools) if tool.name == kind), None)
    if tool is None:
        return reject(RejectionCode.UNKNOWN_TOOL, f"there is no tool {_short(kind)}", ("type",), None)
    arguments = {key: argument for key, argument in value.items() if key != "type"}
    wrong = check(arguments, tool.input_schema)
    if wrong is not None:
        return reject(wrong.code, wrong.message, wrong.path, tool.name)
    return ToolCall(tool.name, arguments)


def _short(name: str) -> str:
    return json.dumps(name[:40], ensure_ascii=False)
