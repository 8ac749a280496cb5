"""What the package bfcl-eval ships: files of rows, and functions in a dialect of JSON Schema of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from callwright.envs.tasks.benchmarks.benchmark import Row
from callwright.serving.protocol.values import Tool

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


def data_folder() -> Any:
    """The folder of its rows."""
    return files("bfcl_eval") / "data"


def lines_of(path: Any) -> Iterator[Row]:
    """The rows of one of its JSONL files."""
    yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def tool_name(name: str) -> str:
    """The name that a model is told."""
    return name.replace(".", "_")


def tool_of(function: Mapping[str, Any]) -> Tool:
    """A function as the package describes it, as a tool. Names have underscores for dots."""
    schema = {**_schema(function["parameters"]), "additionalProperties": False}
    return Tool(tool_name(function["name"]), function["description"], schema)


def _schema(described: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of a type as BFCL describes it, which has names of its own for some."""
    kind = _TYPES.get(described["type"], described["type"])
    schema: dict[str, Any] = {key: described[key] for key in ("description", "enum", "required") if key in described}
    if kind is not None:
        schema["type"] = kind
    if isinstance(described.get("properties"), Mapping):
        schema["properties"] = {name: _schema(inner) for name, inner in described["properties"].items()}
    if isinstance(described.get("items"), Mapping):
        schema["items"] = _schema(described["items"])
    return schema
