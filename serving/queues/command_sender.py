"""The one way onto a command queue: the body is validated as it will travel, then sent as it was validated."""

from __future__ import annotations

import logging

from callwright.serving.protocol.values import Rejection, Tool, ToolCall, new_call_id
from callwright.serving.queues.broker import Broker, command_queue
from callwright.serving.validation import validate

log = logging.getLogger(__name__)


class CommandSender:
    """Sends one tool's commands. Invariant: no body leaves that the tool's executor would refuse."""

    def __init__(self, broker: Broker, tool: Tool, queue: str | None = None) -> None:
        self.tool = tool
        self.queue = queue or command_queue(tool.name)
        self._broker = broker

    async def send(self, body: str | bytes, *, lane: str = "", message_id: str | None = None) -> ToolCall | Rejection:
        """Send exactly ``body``, or refuse it and send nothing. Raises BrokerError."""
        verdict = validate(body, tools=(self.tool,), expected=self.tool.name)
        if isinstance(verdict, Rejection):
            log.info("request refused before %s: %s: %s", self.queue, verdict.code, verdict.message)
            return verdict
        raw = body.encode() if isinstance(body, str) else body
        await self._broker.send(self.queue, raw, message_id=message_id or new_call_id(), lane=lane)
        return verdict
