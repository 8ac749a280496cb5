"""Gemini's older way to declare parameters, a subset of OpenAPI, read as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def json_schema_of(schema: Any) -> Any:
    """Types in lower case, ``nullable`` as a type, counts as numbers (they travel as text); nothing else changes."""
    if isinstance(schema, list):
        return [json_schema_of(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        name = _camel(key)
        if name == "properties" and isinstance(value, Mapping):
            result[name] = {inner: json_schema_of(item) for inner, item in value.items()}
        elif name == "type" and isinstance(value, str):
            result[name] = value.lower()
        elif name in _COUNTS and isinstance(value, str):
            result[name] = int(value)
        elif name in ("items", "anyOf"):
            result[name] = json_schema_of(value)
        elif name != "nullable":
            result[name] = value
    if schema.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def _camel(key: str) -> str:
    head, *rest = key.split("_")
    return head + "".join(word.capitalize() for word in rest)
