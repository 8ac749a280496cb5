"""One translation under way: where it goes, the name map of its conversation, and the losses so far."""

from __future__ import annotations

from typing import Any

from callwright.serving.protocol.conversation import Message, Text
from callwright.serving.protocol.values import (
    Extra,
    Rejection,
    ResultStatus,
    Tool,
    ToolCall,
    ToolResult,
    compact_json,
    is_synthetic_id,
)
from callwright.serving.wires.base import CapabilityError, Json, Loss, LossKind, Translation, WireFormat
from callwright.serving.wires.models import ModelTable, model_table
from callwright.serving.wires.names import NameMap, wire_id

# Where arguments are an object, this key holds the text of refused ones: no tool declares it, and the model reads it.
REFUSED_KEY = "INVALID_JSON"


class Context:
    """Passed to every function of a wire that writes."""

    def __init__(
        self,
        fmt: WireFormat,
        names: NameMap | None = None,
        model: str = "",
        thinking: bool = False,
        signature_bypass: bool = False,
        serving: bool = False,
    ) -> None:
        if names is not None and names.fmt is not fmt:
            raise ValueError(f"this name map is for {names.fmt}, not for {fmt}")
        self.fmt = fmt
        self.names = names or NameMap(fmt)
        self.model = model
        self.thinking = thinking
        self.signature_bypass = signature_bypass
        self.serving = serving  # the vendor's side is ours: every call gets its id, and no signature is owed
        self._losses: dict[tuple[LossKind, str], Loss] = {}
        self._synthetic: set[str] = set()

    @property
    def table(self) -> ModelTable:
        return model_table()

    def lose(self, kind: LossKind, why: str, before: Any = None, after: Any = None) -> None:
        """Note a loss, each one once."""
        self._losses.setdefault((kind, why), Loss(kind, why, before, after))

    def done(self, payload: Any) -> Translation:
        return Translation(payload, tuple(self._losses.values()))

    def name(self, name: str) -> str:
        wire = self.names.to_wire(name)
        if wire != name:
            self.lose(LossKind.TOOL_NAME, f"the vendor does not take the name {name!r}", name, wire)
        return wire

    def call_name(self, call: ToolCall | Rejection) -> str:
        """The name of a call; a refused one may have none that can be said."""
        if isinstance(call, ToolCall):
            return self.name(call.name)
        self.lose(LossKind.CALL_REFUSED, "that a call was refused is said by its result alone")
        return self.name(call.tool or "unknown")

    def id(self, call_id: str) -> str:
        wire = wire_id(self.fmt, call_id)
        if wire != call_id:
            self.lose(LossKind.CALL_ID, f"the vendor does not take the id {call_id[:80]!r}", call_id, wire)
        return wire

    def own_id(self, call_id: str) -> str | None:
        """The id on a wire that does without: none where it was made here, so that none is invented there."""
        made_here = call_id in self._synthetic or is_synthetic_id(call_id)
        return None if made_here and not self.serving else self.id(call_id)

    def know(self, calls: tuple[ToolCall | Rejection, ...]) -> None:
        """Remember which ids are synthetic, for the results that come after."""
        self._synthetic |= {call.id for call in calls if isinstance(call, ToolCall) and call.synthetic_id}

    def own(self, extra: Extra | None) -> Json:
        """The data of an extra that may be sent here, else nothing and a note."""
        if extra is None:
            return {}
        if extra.wire != self.fmt:
            self.lose(LossKind.EXTRA, f"data that only {extra.wire} can read")
            return {}
        if extra.model and self.model and extra.model != self.model:
            self.lose(LossKind.EXTRA, f"data that only {extra.model} can read")
            return {}
        return dict(extra.data)

    def joined(self, message: Message) -> str:
        """The text of a message where it has room for one, and calls stand apart from it."""
        texts = [number for number, part in enumerate(message.parts) if isinstance(part, Text)]
        calls = [number for number, part in enumerate(message.parts) if isinstance(part, ToolCall | Rejection)]
        if calls and texts and calls[0] < texts[-1]:
            self.lose(LossKind.PART_ORDER, "text after a call stands before it: this wire keeps them apart")
        elif len(texts) > 1:
            self.lose(LossKind.TEXT_PARTS, "several texts are one: this wire has room for one")
        return message.text

    def flagless(self, result: ToolResult) -> str:
        """The content of a result where a failure has no field: the same JSON object on every such wire."""
        if result.status == ResultStatus.SUCCESS:
            return result.content
        self.lose(LossKind.RESULT_STATUS, "a failure is marked in its text: this wire has no field for it")
        return compact_json({"error": result.content})

    def arguments(self, call: ToolCall | Rejection) -> Json:
        """The arguments as an object; those of a refused call as its text under one key."""
        if isinstance(call, ToolCall):
            return dict(call.arguments)
        self.lose(LossKind.CALL_ARGUMENTS, f"refused arguments stand as text under {REFUSED_KEY}")
        return {REFUSED_KEY: call.raw}

    def arguments_text(self, call: ToolCall | Rejection) -> str:
        return compact_json(call.arguments) if isinstance(call, ToolCall) else call.raw

    def keep_private(self, tool: Tool, *, strict: bool = False, example: bool = False) -> None:
        """Note what of a tool the wire has no field for."""
        if tool.strict and not strict:
            self.lose(LossKind.TOOL_STRICT, "this wire cannot hold a model to a schema")
        if tool.example and not example:
            self.lose(LossKind.TOOL_EXAMPLE, "this wire has no field for an example")
        if tool.stateful:
            self.lose(LossKind.TOOL_STATEFUL, "how often a call may run concerns the executor, not the model")

    def refuse(self, what: str) -> CapabilityError:
        return CapabilityError(f"the wire {self.fmt}{f' with {self.model}' if self.model else ''} cannot {what}")
