"""What a model's text means: canonical values, events, the text dialects, parser, validator and context."""

from callwright.serving.protocol.assembly import assemble
from callwright.serving.protocol.dialects import DIALECTS, Dialect, get_dialect
from callwright.serving.protocol.events import PERSISTED, Event, EventType
from callwright.serving.protocol.parser import Parser, parse
from callwright.serving.protocol.rendering import Rendered
from callwright.serving.protocol.strict_json import StrictJSONError, decode
from callwright.serving.protocol.tools import AZURE, CODE, DEFAULT_TOOLS, WEB
from callwright.serving.protocol.validation import validate
from callwright.serving.protocol.values import (
    ChoiceMode,
    Extra,
    Rejection,
    RejectionCode,
    ResultStatus,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    compact_json,
    new_call_id,
)

__all__ = [
    "AZURE",
    "CODE",
    "DEFAULT_TOOLS",
    "DIALECTS",
    "PERSISTED",
    "WEB",
    "ChoiceMode",
    "Dialect",
    "Event",
    "EventType",
    "Extra",
    "Parser",
    "Rejection",
    "RejectionCode",
    "Rendered",
    "ResultStatus",
    "StrictJSONError",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "assemble",
    "compact_json",
    "decode",
    "get_dialect",
    "new_call_id",
    "parse",
    "validate",
]
