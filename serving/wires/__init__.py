"""Six vendors' wire formats: canonical tools, calls, results and conversations there and back, with every loss named.

``WireFormat`` lists the formats; docs/wires.md says what each carries.
"""

from callwright.serving.protocol.conversation import Message, MessageRole, Text
from callwright.serving.protocol.values import (
    ChoiceMode,
    Extra,
    Rejection,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from callwright.serving.wires.base import (
    CapabilityError,
    Loss,
    LossKind,
    Translation,
    WireError,
    WireFormat,
    wire_format,
)
from callwright.serving.wires.names import NameMap
from callwright.serving.wires.translate import (
    call_to,
    choice_from,
    choice_to,
    echo,
    envelope,
    messages_from,
    messages_to,
    read_reply,
    read_stream,
    result_from,
    result_to,
    tool_from,
    tool_to,
    tools_from,
    tools_to,
)

__all__ = [
    "CapabilityError",
    "ChoiceMode",
    "Extra",
    "Loss",
    "LossKind",
    "Message",
    "MessageRole",
    "NameMap",
    "Rejection",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "Translation",
    "WireError",
    "WireFormat",
    "call_to",
    "choice_from",
    "choice_to",
    "echo",
    "envelope",
    "messages_from",
    "messages_to",
    "read_reply",
    "read_stream",
    "result_from",
    "result_to",
    "tool_from",
    "tool_to",
    "tools_from",
    "tools_to",
    "wire_format",
]
