"""The check of a benchmark: every row's gold answer is right, and an empty one wrong, by the scorer that evaluates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from callwright.envs.rewards import CallTool, GoldFailure, GradingFault
from callwright.envs.rewards.grade import solves
from callwright.envs.tasks.task import Task


async def check_rows(tasks: Sequence[Task], call: CallTool, concurrency: int = 8) -> list[GoldFailure]:
    """What is wrong with the rows: an empty list is a pass."""
    gate = asyncio.Semaphore(concurrency)

    async def check(task: Task) -> list[GoldFailure]:
        async with gate:
            return [GoldFailure(task.key, reason) for reason in await _reasons(task, call)]

    return [failure for found in await asyncio.gather(*map(check, tasks)) for failure in found]


async def _reasons(task: Task, call: CallTool) -> list[str]:
    reasons = []
    try:
        if not await solves(task, task.answer, call):
            reasons.append(f"the gold answer scores 0: {task.answer[:80]!r}")
        if await solves(task, "", call):
            reasons.append("an empty answer scores 1")
    except GradingFault as error:
        reasons.append(str(error))
    return reasons
