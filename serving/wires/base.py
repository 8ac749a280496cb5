"""What the six wires share: their names, the losses of a translation, and its two errors.

Invariants: a translation says everything that it could not carry; what a wire cannot do at all is a
``CapabilityError``; data that is not of the wire is a ``WireError``, raised before anything was read from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from callwright.serving.errors import UserError

Json = dict[str, Any]


class WireFormat(StrEnum):
    """The formats in which vendors take tools and give calls. One module each in this package."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    OLLAMA = "ollama"
    HERMES = "hermes"


def wire_format(name: str) -> WireFormat:
    """The format of that name; ``ValueError`` names the known ones."""
    try:
        return WireFormat(name)
    except ValueError:
        raise ValueError(f"unknown wire format {name!r}: one of {', '.join(WireFormat)}") from None


class LossKind(StrEnum):
    """What a translation did not carry. Closed: what is not named here arrives equal."""

    TOOL_NAME = "tool.name"  # changed to the vendor's rule; the name map turns it back
    TOOL_STRICT = "tool.strict"
    TOOL_SCHEMA = "tool.schema"  # schema words that the vendor does not read
    TOOL_EXAMPLE = "tool.example"
    TOOL_STATEFUL = "tool.stateful"
    CALL_ID = "call.id"  # changed to the vendor's rule, or not carried
    CALL_ARGUMENTS = "call.arguments"  # of a refused call, on a wire where arguments are an object
    CALL_REFUSED = "call.refused"  # that a call was refused, and why; its result says so
    CALL_SIGNATURE = "call.signature"  # the vendor may refuse a replayed call without its signature
    RESULT_STATUS = "result.status"  # a failure is marked in its content instead
    CHOICE_PARALLEL = "choice.parallel"
    EXTRA = "extra"  # opaque data of another vendor or model
    PART_ORDER = "message.part_order"  # text that followed a call stands before it
    TEXT = "message.text"  # changed so that it cannot be taken for a marker
    TEXT_PARTS = "message.text_parts"  # several texts became one
    BOUNDARY = "message.boundary"  # two messages became one
    ROLE = "message.role"
    EMPTY_MESSAGE = "message.empty"
    REASONING_EFFORT = "reasoning.effort"
    REASONING_BUDGET = "reasoning.budget"
    REASONING_SUMMARY = "reasoning.summary"
    CACHE = "cache"
    CACHE_TTL = "cache.ttl"
    CACHE_KEY = "cache.key"


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that was not carried, and why. ``before`` and ``after`` show a value that was changed."""

    kind: LossKind
    why: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        change = "" if self.after is None else f" ({self.before} became {self.after})"
        return f"{self.kind}: {self.why}{change}"


class Translation(NamedTuple):
    """What goes on the wire, and everything that it does not say."""

    payload: Any
    losses: tuple[Loss, ...] = ()


class WireError(UserError, ValueError):
    """The data is not of this wire, or the conversation cannot be said on any. The message says where and why."""


class CapabilityError(UserError, ValueError):
    """This wire or this model cannot do what is asked. Never dropped, never replaced by something weaker."""
