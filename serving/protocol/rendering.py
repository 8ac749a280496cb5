"""How an executor's record and a rejection become the text that a model reads.

Invariants: what is shown is one compact JSON object without a literal ``<``, so no marker can stand in it; it is never
longer than asked, a string that was cut says by how much, and the text stays valid JSON; any bytes can be rendered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from callwright.serving.protocol.strict_json import StrictJSONError, decode
from callwright.serving.protocol.values import Rejection, compact_json

MAX_CHARS = 4000
MIN_CHARS = 256  # room for the text that says how much was cut
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """Text for the model, to be encoded with special tokens off. ``error`` says that the call did not succeed."""

    text: str
    error: bool


def record_of(body: bytes) -> dict[str, Any] | None:
    """The object that an executor's record holds, or None where it is not one strict JSON object."""
    try:
        record = decode(body.decode())
    except (UnicodeDecodeError, StrictJSONError):
        return None
    return record if isinstance(record, dict) else None


def read_record(record: bytes, tool: str | None) -> tuple[str | None, bool, dict[str, Any]]:
    """Of an executor's record: the tool (``tool`` where it names none), whether the call failed, and what is shown."""
    fields = record_of(record)
    if fields is None:
        return tool, True, {"text": record.decode(errors="replace")}
    named = fields.get("type")
    name = named if isinstance(named, str) and PLAIN_NAME.fullmatch(named) else tool
    return name, fields.get("status") != "ok", shown_fields(fields)


def shown_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record is worth tokens: no routing keys, nothing empty, no success code, no trailing line breaks."""
    shown = {key: _without_final_breaks(value) for key, value in record.items() if key not in ("type", "status")}
    if shown.get("exit_code") == 0:
        del shown["exit_code"]
    return {key: value for key, value in shown.items() if value is not None and value != ""}


def rejection_fields(rejection: Rejection, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a model needs to mend its call: the code, the cause, the place and the schema of the right one."""
    fields: dict[str, Any] = {"code": rejection.code, "message": rejection.message, "offset": rejection.offset}
    return fields if schema is None else {**fields, "schema": schema}


def require_room(max_chars: int) -> None:
    """Raises ValueError for a bound that has no room for its own notice."""
    if max_chars < MIN_CHARS:
        raise ValueError(f"a result needs at least {MIN_CHARS} characters")


def bounded_json(fields: Mapping[str, Any], max_chars: int) -> str:
    """``fields`` as JSON text of at most ``max_chars`` characters, with its longest strings cut to what fits."""
    text = marker_safe_json(fields)
    if len(text) <= max_chars:
        return text
    best: str | None = None
    low, high = 0, max_chars
    while low <= high:  # the longest string length whose text fits
        middle = (low + high) // 2
        text = marker_safe_json(_cut_strings(fields, middle))
        if len(text) <= max_chars:
            best, low = text, middle + 1
        else:
            high = middle - 1
    if best is not None:
        return best
    # Too much besides strings: show the head of the JSON as text instead.
    return bounded_json({"text": compact_json(fields)}, max_chars)


def marker_safe_json(value: Any) -> str:
    """``value`` as JSON text in which no marker can stand."""
    # In JSON text "<" occurs only inside strings, where the escape means the same.
    return compact_json(value).replace("<", "\\u003c")


def _without_final_breaks(value: Any) -> Any:
    return _map_strings(value, lambda text: text.rstrip("\r\n"))


def _cut_strings(value: Any, longest: int) -> Any:
    return _map_strings(value, lambda text: _cut(text, longest))


def _cut(text: str, longest: int) -> str:
    """Head and tail of a long text: the cause of a failure tends to stand in its last lines."""
    if len(text) <= longest:
        return text
    head, tail = (longest + 1) // 2, longest // 2
    return f"{text[:head]}...({len(text) - longest} characters cut)...{text[len(text) - tail :]}"


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_strings(item, change) for key, item in value.items()}
    return value
