"""Tasks that are graded by their calls: the functions are the row's own, and nothing runs.

Invariants: a call is answered at once and leaves no trace anywhere but here; the calls of all turns are one list, in
the order in which they came, because some dialects allow one call a turn; a rollout that did not finish, or that says
nothing at all, is wrong, also where no call is the right answer.
"""

from __future__ import annotations

import json
from dataclasses import replace

from callwright.envs.rewards import CallTool, Evidence, Reward
from callwright.envs.rollout import Grader
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply, make_record


class RecordedCalls:
    """The executor and the grader of one rollout; ``grade`` is what pays it once its calls are its answer."""

    def __init__(self, grade: Grader) -> None:
        self._grade = grade
        self._calls: list[ToolCall] = []

    async def call(self, call: ToolCall) -> Reply:
        """Take note of a call."""
        self._calls.append(call)
        record = make_record(call.name, CallStatus.OK, message="noted; the call is not run")
        return Reply(record, CallStatus.OK, "", 0.0, "recorded")

    async def grade(self, evidence: Evidence, call: CallTool, /) -> Reward:
        """Grade the calls in place of the answer's text."""
        if evidence.solution is not None and (self._calls or evidence.finished):
            evidence = replace(evidence, solution=calls_text(self._calls))
        return await self._grade(evidence, call)


def calls_text(calls: list[ToolCall]) -> str:
    """Calls as the scorer reads them: ``[{name: arguments}]``."""
    return json.dumps([{call.name: call.arguments} for call in calls])
