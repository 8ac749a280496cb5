"""How rollouts and graders reach the tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import Reply

CallTool = Callable[[ToolCall], Awaitable[Reply]]

Episodes = Callable[[], AbstractContextManager[CallTool]]
"""Opens one rollout's way to the tools. What a stateful tool keeps is that rollout's alone, and ends with it."""
