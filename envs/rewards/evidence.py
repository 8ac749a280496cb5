"""What a reward is made from: the parser's verdicts, the calls that ran and their records from the reward queue.

Invariant: no text of the policy is here but its submitted answer, so that no reward can count what was only written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callwright.envs.tasks.task import Step, Task
from callwright.envs.traces import Trace
from callwright.serving.errors import UserError
from callwright.serving.protocol.values import compact_json
from callwright.serving.queues.reply import CallStatus


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call that ran, and what came back. ``record`` is the executor's output, verbatim."""

    tool: str
    body: str
    status: CallStatus
    record: str
    cause: str
    seconds: float

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The call's arguments, as the validator accepted them."""
        return {name: value for name, value in json.loads(self.body).items() if name != "type"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One ended rollout. ``solution`` is None where it gave no answer; ``rejections`` and ``violations`` are counts;
    ``answered`` has, for each of the user's messages that was answered, how many calls had been made by then."""

    task: Task
    solution: str | None
    calls: tuple[CallRecord, ...] = ()
    rejections: int = 0
    violations: int = 0
    answered: tuple[int, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether it submitted an answer that says something."""
        return self.solution is not None and bool(self.solution.strip())

    @property
    def clean(self) -> bool:
        """Whether it finished without a rejected call or another violation."""
        return self.finished and not self.rejections and not self.violations


def evidence_of(trace: Trace) -> Evidence:
    """The evidence that a trace holds. Raises UserError for a trace that was written without its gold plan."""
    if "plan" not in trace:
        raise UserError("these traces hold no gold plans: record them again with this callwright")
    plan = tuple(Step(step["tool"], step["arguments"]) for step in trace["plan"])
    task = Task(trace["key"], trace["family"], trace["question"], trace["answer"], plan)
    calls = tuple(
        CallRecord(
            call["tool"],
            compact_json({"type": call["tool"], **call["arguments"]}),
            CallStatus(call["status"]),
            call["record"],
            call["cause"],
            call["seconds"],
        )
        for call in trace["calls"]
    )
    return Evidence(task, trace["solution"], calls, len(trace["rejections"]), trace["violations"])
