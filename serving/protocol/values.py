"""The canonical values that every dialect, queue and wire translates to and from.

Invariants: all values are immutable; a ``ToolCall`` exists only after the validator accepted it; one ``ToolCall`` ends
in exactly one ``ToolResult``. Rejection codes are one closed enum shared by the parser, the sender and the executor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class RejectionCode(StrEnum):
    """Why a call was refused. Closed: a new cause is a new member here, nowhere else."""

    MALFORMED_JSON = "malformed_json"
    MALFORMED_CALL = "malformed_call"  # the function and parameter tags of a call do not stand as they must
    DUPLICATE_KEY = "duplicate_key"
    NON_FINITE_NUMBER = "non_finite_number"
    LONE_SURROGATE = "lone_surrogate"
    NOT_AN_OBJECT = "not_an_object"
    NOT_AN_ARRAY = "not_an_array"  # the calls of one block stand in an array
    UNKNOWN_TOOL = "unknown_tool"
    FOREIGN_TYPE = "foreign_type"  # the body's type is not the tag's, or not this queue's
    MISSING_KEY = "missing_key"
    EXTRA_KEY = "extra_key"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    BLANK_STRING = "blank_string"
    TRUNCATED = "truncated"  # the turn ended inside an open call
    TOO_LARGE = "too_large"  # an open block, a nesting or an integer beyond its bound
    SECOND_CALL = "second_call"  # one call a turn: the later ones are not run
    FORBIDDEN_PLACE = "forbidden_place"  # a call inside think or solution: not run
    FORGED_RESULT = "forged_result"  # a result written by the model


def compact_json(value: Any) -> str:
    """The one JSON text of a value: no blanks, characters as they are, keys in the order they came."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, declared once: the prompt, the validator, the parser, the queue and the executor follow from it.

    ``input_schema`` is a JSON Schema object with ``properties``, ``required`` and ``additionalProperties: false``. The
    queue body is ``{"type": name, **arguments}``. A ``stateful`` tool is never executed twice for one call.
    ``example`` is one valid set of arguments, shown in prompts.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    stateful: bool = False
    example: Mapping[str, Any] = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """Argument name to its schema, in declared order (the order of a canonical body)."""
        properties: Mapping[str, Mapping[str, Any]] = self.input_schema.get("properties", {})
        return properties

    @property
    def body_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the whole queue body: the arguments' schema with ``type`` in front."""
        return {
            **self.input_schema,
            "properties": {"type": {"const": self.name}, **self.properties},
            "required": ["type", *self.input_schema.get("required", ())],
        }


def new_call_id() -> str:
    """A unique id for a call whose dialect or wire gives none. Telemetry only: nothing pairs by it."""
    return f"call_{os.urandom(16).hex()}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the validator accepted. ``synthetic_id`` says that ``id`` was made here, not read from the model."""

    name: str
    arguments: Mapping[str, Any]
    id: str = field(default_factory=new_call_id)
    synthetic_id: bool = True

    def body(self) -> bytes:
        """The exact UTF-8 JSON bytes of the command queue: ``type`` first, then the arguments, nothing more."""
        return compact_json({"type": self.name, **self.arguments}).encode()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused call. ``offset`` is in characters from the start of the text that was judged; ``raw`` is bounded."""

    code: RejectionCode
    message: str
    offset: int = 0
    tool: str | None = None
    raw: str = ""


class ResultStatus(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back for one call. ``content`` is the executor's record, as it arrived on the reward queue."""

    call_id: str
    tool: str
    status: ResultStatus
    content: str
