"""What runs a tool's calls.

Invariants: an executor sees only calls that the validator accepted; it answers every call with one record
``{"type": tool, "status": ..., ...}``, JSON through and through; what it raises is an infra fault and is told so by the
worker. The statuses are those of ``CallStatus``: ok (it ran and succeeded), error (it ran and failed: an observation),
limit (it ran into a limit that was the call's to keep), infra_fault (ours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from callwright.serving.errors import RunError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

Record = Mapping[str, Any]


class ExecutorUnavailable(RunError):
    """The executor cannot run on this machine. One line: what is missing, and the command that mends it."""


class Executor(Protocol):
    """One tool's back end. ``name`` says which one answered, in records of faults and in logs."""

    @property
    def name(self) -> str: ...

    async def start(self) -> None:
        """Probe and warm up. Raises ExecutorUnavailable."""
        ...

    async def run(self, call: ToolCall) -> Record:
        """Run one call. Many may be in flight at once."""
        ...

    async def close(self) -> None:
        """Give everything back. Safe to call twice, and after a failed start."""
        ...


def record_of(call: ToolCall, status: CallStatus, **fields: Any) -> Record:
    """A record of ``call``: its type and status first, then the fields."""
    return {"type": call.name, "status": str(status), **fields}
