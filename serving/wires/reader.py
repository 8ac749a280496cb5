"""Reading what a vendor sent: plain data, calls that may be malformed, and which result answers which call.

Invariants: arguments become an object by strict JSON or the call is a ``Rejection`` with its bounded text, never
``{}``; absent or blank arguments are ``{}`` unless the reply was cut off there; ids are unique within a turn; every
result that was read belongs to a call that was read before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callwright.serving.protocol.schema import check
from callwright.serving.protocol.strict_json import StrictJSONError, decode, locate
from callwright.serving.protocol.validation import RAW_LIMIT
from callwright.serving.protocol.values import (
    Extra,
    Rejection,
    RejectionCode,
    ResultStatus,
    Tool,
    ToolCall,
    ToolResult,
    is_synthetic_id,
    new_call_id,
)
from callwright.serving.wires.base import WireError, WireFormat
from callwright.serving.wires.names import NameMap


def plain(data: Any) -> Any:
    """Vendors' SDK objects as the JSON that they stand for; plain data as it is."""
    dump = getattr(data, "model_dump", None)
    if dump is None:
        return data
    return dump(mode="json", by_alias=True, exclude_none=True, warnings=False)


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise WireError(f"{where} must be an object, not {type(value).__name__}")
    return value


def sequence(value: Any, where: str) -> Sequence[Any]:
    """A list; nothing at all reads as an empty one, as several servers write it."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise WireError(f"{where} must be a list, not {type(value).__name__}")
    return value


def place(value: Any, default: int) -> int:
    """The index that a chunk gives itself, or the one that it must have."""
    return value if isinstance(value, int) else default


@dataclass(slots=True)
class _Open:
    """A call of the current turn that was not answered yet."""

    wire_id: str | None
    id: str
    name: str


class Reader:
    """Passed to every function of a wire that reads."""

    def __init__(
        self,
        fmt: WireFormat,
        tools: Sequence[Tool] | None = None,
        names: NameMap | None = None,
        model: str = "",
        lone: bool = False,
    ) -> None:
        """``lone``: a result may be read without the call that it answers."""
        self.fmt = fmt
        self._lone = lone
        self._tools = None if tools is None else {tool.name: tool for tool in tools}
        self._names = names
        self._model = model
        self._open: list[_Open] = []
        self._seen: set[str] = set()

    @property
    def tools(self) -> list[Tool] | None:
        """The tools that calls are held to, where they were told."""
        return None if self._tools is None else list(self._tools.values())

    def extra(self, data: Mapping[str, Any]) -> Extra:
        return Extra(self.fmt, dict(data), self._model)

    def turn(self) -> None:
        """A new assistant turn starts: its calls have ids of their own."""
        self._open.clear()
        self._seen.clear()

    def expect(self, calls: Sequence[ToolCall | Rejection]) -> None:
        """Calls that were not read here and whose results come next."""
        for call in calls:
            made = call.id if isinstance(call, ToolCall) else call.call_id
            self._open.append(_Open(made, made, call.name if isinstance(call, ToolCall) else call.tool or ""))

    def name(self, name: str) -> str:
        return self._names.from_wire(name) if self._names is not None else name

    def call(
        self, name: Any, arguments: Any, call_id: Any = None, *, cut: bool = False, extra: Extra | None = None
    ) -> ToolCall | Rejection:
        """One call. ``arguments`` are an object or its text; ``cut`` says that the reply may have ended inside it."""
        wire_id = call_id if isinstance(call_id, str) and call_id else None
        unique = wire_id if wire_id is not None and wire_id not in self._seen else new_call_id()
        self._seen.add(unique)
        name = self.name(name) if isinstance(name, str) and name else None
        self._open.append(_Open(wire_id, unique, name or ""))
        if name is None:
            return _refusal(RejectionCode.MISSING_KEY, "the call has no name", arguments, None, unique)
        verdict = self._judge(name, arguments, cut)
        if isinstance(verdict, Rejection):
            return Rejection(verdict.code, verdict.message, verdict.offset, name, verdict.raw, unique)
        value, notes = verdict
        return ToolCall(name, value, unique, is_synthetic_id(unique), extra, notes)

    def refuse(self, code: RejectionCode, message: str, raw: str, offset: int = 0) -> Rejection:
        """A call that has no name to go by; it waits for its answer like any other."""
        call_id = new_call_id()
        self._open.append(_Open(None, call_id, ""))
        return _refusal(code, message, raw, None, call_id, offset)

    def _judge(self, name: str, arguments: Any, cut: bool) -> tuple[dict[str, Any], tuple[str, ...]] | Rejection:
        text = _text_of(arguments)
        if not text.strip() or (cut and not isinstance(arguments, str) and not arguments):
            if cut:
                return _refusal(RejectionCode.TRUNCATED, "the reply was cut off before the arguments", text, name)
            return self._checked(name, {}, "{}", ())
        notes: tuple[str, ...] = ()
        try:
            value = decode(text)
            if isinstance(value, str):
                # Some servers encode the object twice. One more decoding is exact; anything further is a guess.
                text, value = value, decode(value)
                notes = ("the arguments were JSON text inside JSON text",)
        except StrictJSONError as error:
            code = RejectionCode.TRUNCATED if cut else error.code
            message = f"the reply was cut off inside the arguments: {error.message}" if cut else error.message
            return _refusal(code, message, text, name, offset=error.offset)
        if not isinstance(value, dict):
            return _refusal(RejectionCode.NOT_AN_OBJECT, "the arguments must be one JSON object", text, name)
        return self._checked(name, value, text, notes)

    def _checked(
        self, name: str, value: dict[str, Any], text: str, notes: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]] | Rejection:
        if self._tools is None:
            return value, notes
        if name not in self._tools:
            message = f"there is no tool {json.dumps(name[:40], ensure_ascii=False)}"
            return _refusal(RejectionCode.UNKNOWN_TOOL, message, text, name)
        wrong = check(value, self._tools[name].input_schema)
        if wrong is not None:
            offset = locate(text).get(wrong.path, 0)
            return _refusal(wrong.code, wrong.message, text, name, offset=offset)
        return value, notes

    def result(
        self,
        content: str,
        *,
        failed: bool = False,
        call_id: str | None = None,
        tool: str | None = None,
        extra: Extra | None = None,
    ) -> ToolResult:
        """One result: it answers the open call of that id, else the first open one of that tool, else the first."""
        tool = self.name(tool) if tool else None
        status = ResultStatus.FAILURE if failed else ResultStatus.SUCCESS
        for call in self._open:
            if call_id == call.wire_id if call_id else tool is None or call.name in ("", tool):
                self._open.remove(call)
                return ToolResult(call.id, call.name or tool or "", status, content, extra)
        if self._lone:
            return ToolResult(call_id or new_call_id(), tool or "unknown", status, content, extra)
        raise WireError(f"a result answers no open call (id {call_id!r}, tool {tool!r})")


def _text_of(arguments: Any) -> str:
    """Arguments as JSON text, so that decoded ones pass the same strict reader. Text passes as it came."""
    if isinstance(arguments, str) or arguments is None:
        return arguments or ""
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "(not JSON)"


def _refusal(
    code: RejectionCode, message: str, arguments: Any, tool: str | None, call_id: str = "", offset: int = 0
) -> Rejection:
    return Rejection(code, message, offset, tool, _text_of(arguments)[:RAW_LIMIT], call_id)
