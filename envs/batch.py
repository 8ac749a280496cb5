"""Many rollouts at once, and the deadline that closes them.

Invariants: every attempt gives exactly one rollout, in the order asked for; past the deadline what still runs is
cancelled and comes back as ``late``; the key of an attempt addresses its randomness, so order and timing change
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from callwright.envs.rollout import Budgets, CallTool, Grader, Policy, Rollout, rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.sampler import address


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task, tried once. ``stream`` names the run and step; (stream, task, sample) addresses the random numbers."""

    task: Task
    sample: int
    stream: str
    prefill: str = ""

    @property
    def session(self) -> str:
        return f"{self.stream}|{self.task.key}|{self.sample}"


@dataclass(frozen=True, slots=True)
class Arena:
    """What every rollout of a batch shares."""

    policy: Policy
    call_tool: CallTool
    grade: Grader
    budgets: Budgets


async def run_batch(
    attempts: Sequence[Attempt],
    arena: Arena,
    *,
    deadline_s: float,
    on_done: Callable[[Rollout], None] | None = None,
) -> list[Rollout]:
    """Run all attempts at once; ``on_done`` is called as each one ends.

    Returns after at most ``deadline_s``, give or take the cancellations. Never raises for a failed rollout.
    """
    arena.policy.engine.open([attempt.session for attempt in attempts])
    tasks = [asyncio.create_task(_run(attempt, arena, on_done), name=attempt.session) for attempt in attempts]
    try:
        _, pending = await asyncio.wait(tasks, timeout=deadline_s)
        await _cancel(pending)
    except asyncio.CancelledError:
        await _cancel(tasks)
        raise
    finally:
        # A task cancelled before it began could not say so itself, and a deterministic engine would wait for it.
        for attempt in attempts:
            arena.policy.engine.release(attempt.session)
    return [
        _late(attempt, deadline_s) if task in pending and task.cancelled() else task.result()
        for attempt, task in zip(attempts, tasks, strict=True)
    ]


async def _run(attempt: Attempt, arena: Arena, on_done: Callable[[Rollout], None] | None) -> Rollout:
    done = await rollout(
        attempt.task,
        arena.policy,
        arena.call_tool,
        arena.grade,
        arena.budgets,
        key=address(attempt.session),
        session=attempt.session,
        sample=attempt.sample,
        prefill=attempt.prefill,
    )
    if on_done is not None:
        on_done(done)
    return done


async def _cancel(tasks: Sequence[asyncio.Task[Rollout]] | set[asyncio.Task[Rollout]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _late(attempt: Attempt, deadline_s: float) -> Rollout:
    late = Rollout(task=attempt.task, sample=attempt.sample)
    late.trajectory.finish(Outcome.LATE, f"the group closed after {deadline_s:g} s")
    return late
