"""The gold check: every row must be solvable by its own plan, and by nothing that says nothing.

It runs the plans through the real executors, so it holds the tasks, the corpus, the executors and the grader together.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from callwright.envs.rewards.grade import CallTool, solves
from callwright.envs.tasks.task import Task
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply


@dataclass(frozen=True, slots=True)
class GoldFailure:
    """One reason why a row is not sound."""

    key: str
    reason: str


def says(text: str, answer: str) -> bool:
    """Whether a text contains the answer as a whole token."""
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


async def gold_check(tasks: Iterable[Task], call: CallTool, concurrency: int = 16) -> list[GoldFailure]:
    """Checks every task and returns what is wrong with them: an empty list is a pass."""
    gate = asyncio.Semaphore(concurrency)

    async def bounded(task: Task) -> list[GoldFailure]:
        async with gate:
            return [GoldFailure(task.key, reason) for reason in await _reasons(task, call)]

    return [failure for found in await asyncio.gather(*map(bounded, tasks)) for failure in found]


async def _reasons(task: Task, call: CallTool) -> list[str]:
    reasons = list(_leaks(task))
    observation = ""
    for step in task.plan:
        reply = await call(ToolCall(step.tool, step.arguments))
        if reply.status is not CallStatus.OK:
            return [*reasons, f"the gold call to {step.tool} ended in {reply.status}: {reply.cause}"]
        observation = reply.record.decode()
    if task.plan and task.grounded and not says(observation, task.answer):
        reasons.append(f"the last gold observation does not contain {task.answer!r}: {observation[:200]}")
    reasons += await _misgraded(task, call)
    for wrong in ("", *task.guesses):
        if await solves(task, wrong, call):
            reasons.append(f"the wrong answer {wrong!r} is graded right")
    return reasons


async def _misgraded(task: Task, call: CallTool) -> list[str]:
    """Why the gold answer is not graded right. A limit that its tests ran into, as on a machine that is too busy for
    the configured time, says nothing about the answer, and is called what it is."""
    replies: list[Reply] = []

    async def watched(wanted: ToolCall) -> Reply:
        replies.append(await call(wanted))
        return replies[-1]

    if await solves(task, task.answer, watched):
        return []
    if any(reply.status is CallStatus.LIMIT for reply in replies):
        return [f"the tests of the gold answer ended in {replies[-1].status}: {replies[-1].cause}"]
    said = "".join(f": {reply.record.decode()[:200]}" for reply in replies)
    return [f"the gold answer is graded wrong{said}"]


def _leaks(task: Task) -> Iterator[str]:
    if says(task.question, task.answer):
        yield "the answer stands in the question"
