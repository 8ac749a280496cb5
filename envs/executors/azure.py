"""The ``azure`` tool, behind its interface: no command line is connected, and every call is told so."""

from __future__ import annotations

from callwright.envs.executors.executor import Record, record_of
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus


class UnconfiguredAzure:
    """Answers every call with a typed infra fault, so that no rollout is scored on a tool that is not there."""

    name = "azure/none"

    async def start(self) -> None:
        """Nothing to start."""

    async def run(self, call: ToolCall) -> Record:
        return record_of(call, CallStatus.INFRA_FAULT, executor=self.name, message="azure is not configured")

    async def close(self) -> None:
        """Nothing to close."""
