"""Tasks that are graded by their calls: the functions are the row's own, and no executor of ours runs them.

Invariants: a call is answered here and leaves no trace anywhere but in its rollout; the calls that answer one message
of the user are one list, in the order in which they came, because some dialects allow one call a turn; a rollout that
did not finish, or that says nothing at all, is wrong, also where no call is the right answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from callwright.envs.rewards import CallTool, Evidence, Reward
from callwright.envs.rewards.grade import SCENARIO
from callwright.envs.rewards.judge import JudgeBroken
from callwright.envs.rollout import Grader
from callwright.envs.tasks.task import Functions, Scenario
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply, make_record

_FAILED = "Error during execution"  # how bfcl-eval begins what a call that raised returned


class RecordedCalls:
    """The executor and the grader of one rollout; ``grade`` is what pays it once its calls are its answer."""

    def __init__(self, grade: Grader, functions: Functions) -> None:
        self._grade = grade
        self._functions = functions
        self._made: list[str] = []

    async def call(self, call: ToolCall) -> Reply:
        """Take note of a call, or play it in the row's scenario."""
        if self._functions.scenario is None:
            return _reply(call, CallStatus.OK, message="noted; the call is not run")
        self._made.append(call_text(call.name, call.arguments))
        return await _played(call, self._functions.scenario, list(self._made))

    async def grade(self, evidence: Evidence, call: CallTool, /) -> Reward:
        """Grade the calls in place of the answer's text."""
        if evidence.solution is not None and (evidence.calls or evidence.finished):
            evidence = replace(evidence, solution=calls_text(evidence, self._functions))
        return await self._grade(evidence, call)


def calls_text(evidence: Evidence, functions: Functions) -> str:
    """Calls as the scorer reads them: ``[{name: arguments}]``, or in a scenario a list of texts for each message."""
    if functions.scenario is None:
        return json.dumps([{call.tool: call.arguments} for call in evidence.calls])
    starts = (0, *evidence.answered[:-1])
    turns = [evidence.calls[start:end] for start, end in zip(starts, evidence.answered, strict=True)]
    return json.dumps([[call_text(call.tool, call.arguments) for call in turn] for turn in turns])


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as Python writes it: what bfcl-eval runs. Every value is a literal."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


async def _played(call: ToolCall, scenario: Scenario, made: list[str]) -> Reply:
    """The last of the calls ``made``. All are played again from the beginning, so that no process holds a state."""
    try:
        results = await SCENARIO.answer({"turns": [made], **asdict(scenario)})
    except JudgeBroken as error:
        return _reply(call, CallStatus.INFRA_FAULT, message=str(error))
    if results is None:
        return _reply(call, CallStatus.LIMIT, message="the call took too long, or too much memory")
    if not results:
        return _reply(call, CallStatus.INFRA_FAULT, message="the scenario cannot be played")
    status = CallStatus.ERROR if results[-1].startswith(_FAILED) else CallStatus.OK
    return _reply(call, status, result=results[-1])


def _reply(call: ToolCall, status: CallStatus, **fields: Any) -> Reply:
    cause = "" if status is CallStatus.OK else next(iter(fields.values()))
    return Reply(make_record(call.name, status, **fields), status, cause, 0.0, "recorded")
