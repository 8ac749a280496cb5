"""What runs a tool's calls.

Invariants: an executor sees only calls that the validator accepted; it answers every call with one record
``{"type": tool, "status": ..., ...}``, JSON through and through; what it raises is an infra fault and is told so by the
worker. The statuses are those of ``CallStatus``: ok (it ran and succeeded), error (it ran and failed: an observation),
limit (it ran into a limit that was the call's to keep), infra_fault (ours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from callwright.serving.errors import RunError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

Record = Mapping[str, Any]


class ExecutorUnavailable(RunError):
    """The executor cannot run on this machine. One line: what is missing, and the command that mends it."""


class Backend(Protocol):
    """One tool's back end. ``name`` says which one answered, in records of faults and in logs."""

    @property
    def name(self) -> str: ...

    async def start(self) -> None:
        """Probe and warm up. Raises ExecutorUnavailable."""
        ...

    async def close(self) -> None:
        """Give everything back. Safe to call twice, and after a failed start."""
        ...


class StatelessExecutor(Backend, Protocol):
    """What a call comes to depends on the call alone: it is not told whose it is."""

    async def run(self, call: ToolCall) -> Record:
        """Run one call. Many may be in flight at once."""
        ...


@runtime_checkable
class StatefulExecutor(Backend, Protocol):
    """A call may see what earlier calls of its episode did, and nothing of any other episode.

    An episode is a lane in one epoch: its calls come one after another, and its session id is never used again.
    """

    async def run_in(self, lane: str, call: ToolCall) -> Record:
        """Run one call of the episode ``lane``. Calls of other lanes may be in flight at once."""
        ...


Executor = StatelessExecutor | StatefulExecutor


def record_of(call: ToolCall, status: CallStatus, **fields: Any) -> Record:
    """A record of ``call``: its type and status first, then the fields."""
    return {"type": call.name, "status": str(status), **fields}
