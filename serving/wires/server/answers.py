"""Where each vendor's request says that the answer is JSON, and of which schema.

Invariant: what is read is one JSON Schema; a format that is none of text and JSON is an error, never text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callwright.serving.wires.base import WireError, WireFormat
from callwright.serving.wires.openapi import json_schema_of
from callwright.serving.wires.reader import mapping

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def answer_schema(wire: WireFormat, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON Schema of the answer; None where any text will do. Raises ``WireError``."""
    match wire:
        case WireFormat.OPENAI:
            told = mapping(body.get("response_format") or {}, "response_format")
            return _typed(told, mapping(told.get("json_schema") or {}, "json_schema"))
        case WireFormat.RESPONSES:
            told = mapping(mapping(body.get("text") or {}, "text").get("format") or {}, "text.format")
            return _typed(told, told)
        case WireFormat.ANTHROPIC:
            told = mapping(mapping(body.get("output_config") or {}, "output_config").get("format") or {}, "format")
            return _typed(told, told)
        case WireFormat.GEMINI:
            return _generated(mapping(body.get("generationConfig") or {}, "generationConfig"))
        case WireFormat.OLLAMA:
            asked = body.get("format") or None
            return ANY_OBJECT if asked == "json" else None if asked is None else mapping(asked, "format")
    return None


def _typed(told: Mapping[str, Any], holder: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kind = told.get("type", "text")
    if kind == "json_schema":
        return mapping(holder.get("schema"), "the schema of json_schema")
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "text":
        raise WireError(f"there is no response format {str(kind)[:40]!r} here: text, json_object or json_schema")
    return None


def _generated(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    def value(name: str, other: str) -> Any:
        return config.get(name) if config.get(name) is not None else config.get(other)

    kind = value("responseMimeType", "response_mime_type") or "text/plain"
    plain = value("responseJsonSchema", "response_json_schema")
    schema = plain if plain is not None else json_schema_of(value("responseSchema", "response_schema"))
    if kind == "application/json":
        return mapping({} if schema is None else schema, "responseSchema")
    if kind != "text/plain" or schema is not None:
        raise WireError("a schema of the response needs responseMimeType application/json, and there is no other type")
    return None
