"""The canonical values that every dialect, queue and wire translates to and from.

Invariants: all values are immutable; a ``ToolCall`` exists only after the validator accepted it; one ``ToolCall`` ends
in exactly one ``ToolResult``. Rejection codes are one closed enum shared by the parser, the sender and the executor.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the wires translate these values and are imported only when asked to
    from callwright.serving.wires.base import Translation
    from callwright.serving.wires.names import NameMap


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
    ``example`` is one valid set of arguments, shown in prompts. ``strict`` asks a vendor to hold its model to the
    schema while it decodes.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    stateful: bool = False
    example: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False

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

    def to(self, fmt: str, names: NameMap | None = None) -> Translation:
        """This tool as one element of the wire's list of tools."""
        from callwright.serving.wires import tool_to

        return tool_to(fmt, self, names=names)

    @classmethod
    def from_(cls, fmt: str, data: Any, names: NameMap | None = None) -> Tool:
        """The tool that one element of a wire's list of tools declares."""
        from callwright.serving.wires import tool_from

        return tool_from(fmt, data, names=names)


_SYNTHETIC_ID = re.compile(r"call_cw_[0-9a-f]{32}")


def new_call_id(address: str | None = None) -> str:
    """An id for a call whose dialect or wire gives none: unique, or that of an address. At most 40 characters, the
    least that a vendor takes."""
    digits = os.urandom(16) if address is None else hashlib.sha256(address.encode()).digest()[:16]
    return f"call_cw_{digits.hex()}"


def is_synthetic_id(call_id: str) -> bool:
    """Whether ``new_call_id`` made it: the form is ours alone, so a wire that carries ids carries this fact too."""
    return _SYNTHETIC_ID.fullmatch(call_id) is not None


@dataclass(frozen=True, slots=True)
class Extra:
    """What only one vendor can read (a signature, a reasoning item, an image): opaque, and never sent to another.

    ``wire`` and ``model`` say whose it is. ``place`` is its index among the parts of its message.
    """

    wire: str
    data: Mapping[str, Any]
    model: str = ""
    place: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the validator accepted. ``synthetic_id`` says that ``id`` was made here, not read from the model.

    ``notes`` say what a reader had to do to understand it; they are no part of its value.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = field(default_factory=new_call_id)
    synthetic_id: bool = True
    extra: Extra | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    def body(self) -> bytes:
        """The exact UTF-8 JSON bytes of the command queue: ``type`` first, then the arguments, nothing more."""
        return compact_json({"type": self.name, **self.arguments}).encode()

    def to(self, fmt: str, names: NameMap | None = None) -> Translation:
        """This call as the wire's history holds it; ``echo`` gives the whole message around it."""
        from callwright.serving.wires import call_to

        return call_to(fmt, self, names=names)

    @staticmethod
    def extract(
        fmt: str, response: Any, tools: Sequence[Tool] | None = None, names: NameMap | None = None
    ) -> list[ToolCall | Rejection]:
        """The calls of one response of the vendor, in order; a malformed one is a ``Rejection``, never ``{}``."""
        from callwright.serving.wires import read_reply

        return list(read_reply(fmt, response, tools=tools, names=names).calls)

    @staticmethod
    def extract_stream(
        fmt: str, chunks: Iterable[Any], tools: Sequence[Tool] | None = None, names: NameMap | None = None
    ) -> list[ToolCall | Rejection]:
        """The same from the vendor's stream of chunks."""
        from callwright.serving.wires import read_stream

        return list(read_stream(fmt, chunks, tools=tools, names=names).calls)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused call. ``offset`` is in UTF-8 bytes from the start of the text that was judged; ``raw`` is bounded.

    ``call_id`` is the id of a call that a vendor waits to see answered; empty where the text has none.
    """

    code: RejectionCode
    message: str
    offset: int = 0
    tool: str | None = None
    raw: str = ""
    call_id: str = ""


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
    extra: Extra | None = None

    def to(self, fmt: str, names: NameMap | None = None) -> Translation:
        """This result as one block of the wire; ``envelope`` gives the whole messages around it."""
        from callwright.serving.wires import result_to

        return result_to(fmt, self, names=names)

    @classmethod
    def from_(
        cls, fmt: str, data: Any, calls: Sequence[ToolCall | Rejection] = (), names: NameMap | None = None
    ) -> ToolResult:
        """The result in one block of the wire, and which of ``calls`` it answers."""
        from callwright.serving.wires import result_from

        return result_from(fmt, data, calls, names=names)


class ChoiceMode(StrEnum):
    AUTO = "auto"  # the model decides
    ANY = "any"  # at least one call
    NONE = "none"  # no call
    NAMED = "named"  # a call of this one tool


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether, and which, tools a model may or must call.

    ``names``: the tool of a named choice; with auto or any, the only tools allowed (empty: all). ``parallel``: whether
    one turn may hold several calls (None: as the vendor has it).
    """

    mode: ChoiceMode = ChoiceMode.AUTO
    names: tuple[str, ...] = ()
    parallel: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", ChoiceMode(self.mode))
        object.__setattr__(self, "names", (self.names,) if isinstance(self.names, str) else tuple(self.names))
        if not all(self.names) or (self.mode is ChoiceMode.NAMED and len(self.names) != 1):
            raise ValueError("a named choice names exactly one tool")
        if self.mode is ChoiceMode.NONE and self.names:
            raise ValueError("the choice none allows no tools, so it names none")

    def to(self, fmt: str, names: NameMap | None = None, model: str = "", thinking: bool = False) -> Translation:
        """The fields of a request that say it. Raises ``CapabilityError`` where wire or model cannot do it."""
        from callwright.serving.wires import choice_to

        return choice_to(fmt, self, names=names, model=model, thinking=thinking)

    @classmethod
    def from_(cls, fmt: str, fields: Any, names: NameMap | None = None) -> ToolChoice:
        """The choice that the fields of a request say; a bare vendor's choice is read too."""
        from callwright.serving.wires import choice_from

        return choice_from(fmt, fields, names=names)
