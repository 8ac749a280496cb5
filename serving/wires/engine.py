"""Which formats an engine speaks: its class says so, and an instance may say otherwise.

Tool wire, reasoning and prompt cache are three tags, because servers that share the first differ in the others.
"""

from __future__ import annotations

from callwright.serving.wires.base import WireError, WireFormat, wire_format
from callwright.serving.wires.cache import CacheFormat
from callwright.serving.wires.reasoning import ReasoningFormat


def tool_wire_format(engine: object) -> WireFormat:
    """The one wire format of an engine: the attribute of that name, of the instance or of its class."""
    declared = getattr(engine, "tool_wire_format", None)
    if declared is None:
        raise WireError(f"{type(engine).__name__} declares no tool_wire_format: one of {', '.join(WireFormat)}")
    return wire_format(declared)


def reasoning_format(engine: object) -> ReasoningFormat:
    """Where an engine takes reasoning; an engine that does not say takes none."""
    return ReasoningFormat(getattr(engine, "reasoning_format", ReasoningFormat.NONE))


def cache_format(engine: object) -> CacheFormat:
    """Where an engine takes prompt caching; an engine that does not say takes none."""
    return CacheFormat(getattr(engine, "cache_format", CacheFormat.NONE))
