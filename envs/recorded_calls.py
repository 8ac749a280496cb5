"""Tasks that are graded by their calls: the functions are the row's own, and nothing runs.

Invariants: a call is answered at once and leaves no trace anywhere but here; the calls of all turns are one list, in
the order in which they came, because some dialects allow one call a turn; a rollout that says nothing at all is wrong,
also where no call is the right answer.
"""

from __future__ import annotations

import json

from callwright.envs.rewards import CallTool, Reward, grade
from callwright.envs.tasks.task import Task
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply, make_record


class RecordedCalls:
    """The executor and the grader of one rollout."""

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []

    async def call(self, call: ToolCall) -> Reply:
        """Take note of a call."""
        self._calls.append(call)
        record = make_record(call.name, CallStatus.OK, message="noted; the call is not run")
        return Reply(record, CallStatus.OK, "", 0.0, "recorded")

    async def grade(self, task: Task, solution: str | None, call: CallTool, *, clean: bool) -> Reward:
        """Grade the calls in place of the answer's text."""
        said = bool(self._calls) or bool(solution and solution.strip())
        return await grade(task, calls_text(self._calls) if said else "", call, clean=clean)


def calls_text(calls: list[ToolCall]) -> str:
    """Calls as the scorer reads them: ``[{name: arguments}]``."""
    return json.dumps([{call.name: call.arguments} for call in calls])
