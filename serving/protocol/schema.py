"""Checks a decoded JSON value against the JSON Schema of a tool declaration.

Invariants: ``true`` is not an integer, ``3.0`` is not an integer, ``"3"`` is not a number: nothing is coerced or filled
in. The first violation in document order of the schema is returned, with the path of the value it is about. Keywords
beyond those below are not enforced. The value's nesting is bounded by the decoder, and with it the recursion here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from callwright.serving.protocol.strict_json import Path
from callwright.serving.protocol.values import RejectionCode


@dataclass(frozen=True, slots=True)
class Violation:
    """What a value breaks. ``path`` leads to the value (for a missing key: to the object that lacks it)."""

    code: RejectionCode
    message: str
    path: Path


_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}


def check(value: Any, schema: Mapping[str, Any], path: Path = ()) -> Violation | None:
    """The first way in which ``value`` breaks ``schema``, or None."""
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_IS[kind](value) for kind in kinds):
        return Violation(RejectionCode.WRONG_TYPE, f"{_at(path)} must be {' or '.join(kinds)}{_not(value)}", path)
    if "const" in schema or "enum" in schema:
        allowed = [schema["const"]] if "const" in schema else schema["enum"]
        # Compared as JSON text: in Python, True equals 1.
        if _text(value) not in [_text(option) for option in allowed]:
            message = f"{_at(path)} must be one of {', '.join(map(_text, allowed))}{_not(value)}"
            return Violation(RejectionCode.OUT_OF_RANGE, message, path)
    if isinstance(value, str):
        return _check_string(value, schema, path)
    if isinstance(value, dict):
        return _check_object(value, schema, path)
    if isinstance(value, list):
        return _check_array(value, schema, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounds(value, schema, "minimum", "maximum", path)
    return None


def _check_string(value: str, schema: Mapping[str, Any], path: Path) -> Violation | None:
    # A declared minimum length asks for content, so blanks alone do not count.
    if schema.get("minLength", 0) > 0 and not value.strip():
        return Violation(RejectionCode.BLANK_STRING, f"{_at(path)} must not be blank", path)
    return _bounds(len(value), schema, "minLength", "maxLength", path)


def _check_array(value: list[Any], schema: Mapping[str, Any], path: Path) -> Violation | None:
    wrong = _bounds(len(value), schema, "minItems", "maxItems", path)
    items = schema.get("items")
    if wrong or not isinstance(items, Mapping):
        return wrong
    return next((bad for i, item in enumerate(value) if (bad := check(item, items, (*path, i)))), None)


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], path: Path) -> Violation | None:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            return Violation(RejectionCode.MISSING_KEY, f"the key {_short(key)} is missing", path)
    others = schema.get("additionalProperties", True)
    for key, item in value.items():
        inner = properties.get(key, others)
        if inner is False:
            return Violation(RejectionCode.EXTRA_KEY, f"the key {_short(key)} does not belong here", (*path, key))
        if isinstance(inner, Mapping) and (wrong := check(item, inner, (*path, key))):
            return wrong
    return None


def _bounds(number: float, schema: Mapping[str, Any], low: str, high: str, path: Path) -> Violation | None:
    if low in schema and number < schema[low]:
        bound = f"at least {schema[low]}"
    elif high in schema and number > schema[high]:
        bound = f"at most {schema[high]}"
    else:
        return None
    subject = _at(path) if low == "minimum" else f"the length of {_at(path)}"
    return Violation(RejectionCode.OUT_OF_RANGE, f"{subject} must be {bound}{_not(number)}", path)


def _at(path: Path) -> str:
    return ".".join(map(str, path)) or "the value"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _not(value: Any) -> str:
    """How a message ends that names the offending value."""
    return f", not {_short(value)}"


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
