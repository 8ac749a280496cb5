"""What tools and their schemas have in common on every wire, and what a vendor's strict mode asks of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callwright.serving.protocol.values import Tool
from callwright.serving.wires.base import WireError
from callwright.serving.wires.context import Context
from callwright.serving.wires.reader import Reader, mapping, sequence


def tool_of(data: Mapping[str, Any], schema_key: str, reader: Reader) -> Tool:
    """The tool of a wire that holds name, description, schema and strict side by side."""
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise WireError("a tool has a name")
    schema = data.get(schema_key)
    return Tool(
        name=reader.name(name),
        description=str(data.get("description") or ""),
        input_schema=empty_schema() if schema is None else mapping(schema, schema_key),
        strict=data.get("strict") is True,
    )


def schema_of(tool: Tool) -> dict[str, Any]:
    """A tool's schema as it is sent: no schema at all is that of an empty object."""
    return dict(tool.input_schema) or empty_schema()


def client_tool(data: Any, kinds: tuple[Any, ...]) -> Mapping[str, Any]:
    """A declaration whose calls come to us. One that the vendor's servers would run is refused, not taken for ours."""
    tool = mapping(data, "a tool")
    if tool.get("type") not in kinds:
        raise WireError(f"a tool of type {str(tool.get('type'))[:40]!r} is the vendor's own: only functions are read")
    return tool


def empty_schema() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


def check_strict(tool: Tool, ctx: Context, all_required: bool = True) -> None:
    """Refuse a strict tool whose schema the vendor would refuse or rewrite; it is never changed on the way."""
    for path, schema in _objects(tool.input_schema, tool.name):
        if schema.get("additionalProperties") is not False:
            raise ctx.refuse(f"take {path} as strict: it needs additionalProperties false")
        missing = sorted(set(schema.get("properties", {})) - set(schema.get("required", ())))
        if all_required and missing:
            raise ctx.refuse(f"take {path} as strict: every key must be required, also {', '.join(missing)}")


def _objects(schema: Any, path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Every object schema in a schema, with where it stands."""
    if not isinstance(schema, Mapping):
        return []
    found = [(path, schema)] if schema.get("type") == "object" or "properties" in schema else []
    for key in ("properties", "$defs", "definitions"):
        for name, inner in (schema.get(key) or {}).items():
            found += _objects(inner, f"{path}.{name}")
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in sequence(schema.get(key), key):
            found += _objects(inner, path)
    return found + _objects(schema.get("items"), f"{path}[]")
