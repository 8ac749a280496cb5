"""Many rollouts at once, and the deadline that closes them.

Invariants: every attempt gives exactly one rollout, in the order asked for; past the deadline, or once enough have
ended for one who waits, what still runs is cancelled and comes back as ``late``; the key of an attempt addresses its
randomness, so order and timing change nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.recorded_calls import RecordedCalls
from callwright.envs.rewards import Episodes
from callwright.envs.rollout import Grader, rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.sampler import address
from callwright.serving.progress import log

STALL_S = 30.0


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


class StallWatch:
    """Says what rollouts wait for when none has ended for ``STALL_S``: once for all that run, in whatever batches."""

    def __init__(self) -> None:
        self._running: dict[int, Rollout] = {}
        self._quiet_since = 0.0

    def begin(self, records: Sequence[Rollout]) -> None:
        """These run from now on."""
        if not self._running:
            self._quiet_since = time.monotonic()
        self._running |= {id(record): record for record in records}

    def end(self, record: Rollout) -> None:
        """It ended, in whatever way."""
        if self._running.pop(id(record), None) is not None:
            self._quiet_since = time.monotonic()

    def look(self) -> None:
        """Write the line, where it is due."""
        if self._running and time.monotonic() - self._quiet_since >= STALL_S:
            self._quiet_since = time.monotonic()
            waits = Counter(record.waiting_for for record in self._running.values()).most_common()
            log(f"no rollout ended for {STALL_S:g} s: " + "; ".join(f"{count} while {what}" for what, count in waits))


@dataclass(frozen=True, slots=True)
class Arena:
    """What every rollout of a batch, or of several, shares. Of a larger batch ``in_flight`` rollouts run at once, wave
    after wave: a rollout's wall clock must not run while it waits for a place."""

    policy: Policy
    episode: Episodes
    grade: Grader
    budgets: Budgets
    in_flight: int = 1024
    watch: StallWatch = field(default_factory=StallWatch)


@dataclass(frozen=True, slots=True)
class Early:
    """A close before the deadline: once the batch is ``wanted`` and ``enough`` of its rollouts have ended."""

    wanted: asyncio.Event
    enough: int


async def run_batch(
    attempts: Sequence[Attempt],
    arena: Arena,
    *,
    deadline_s: float,
    on_done: Callable[[Rollout], None] | None = None,
    early: Early | None = None,
) -> list[Rollout]:
    """Run all attempts; ``on_done`` is called as each one ends.

    Returns after at most ``deadline_s``, give or take the cancellations. Never raises for a failed rollout. While none
    in the arena ends for ``STALL_S``, a line on standard error says how many wait for what.
    """
    clock = asyncio.get_running_loop().time
    closing = clock() + deadline_s
    rows: list[Rollout] = []
    for at in range(0, len(attempts), arena.in_flight):
        wave = attempts[at : at + arena.in_flight]
        left = None if early is None else replace(early, enough=early.enough - len(rows))
        close = _Close(closing, f"the group closed after {deadline_s:g} s", left)
        rows += await _wave(wave, arena, close, on_done)
    return rows


@dataclass(frozen=True, slots=True)
class _Close:
    """When a wave closes, by the loop's clock, and what is then said of those that are late; or when it does before."""

    at: float
    late: str
    early: Early | None


async def _wave(
    attempts: Sequence[Attempt],
    arena: Arena,
    close: _Close,
    on_done: Callable[[Rollout], None] | None,
) -> list[Rollout]:
    """Attempts that start together. What is not done when the wave closes is late."""
    arena.policy.engine.open([attempt.session for attempt in attempts])
    records = [Rollout(task=attempt.task, sample=attempt.sample) for attempt in attempts]
    arena.watch.begin(records)
    tasks = {
        asyncio.create_task(_run(attempt, record, arena, on_done), name=attempt.session): record
        for attempt, record in zip(attempts, records, strict=True)
    }
    try:
        pending, late = await _pending_at(close, tasks, arena.watch)
        for task in pending:
            record = tasks[task]
            record.trajectory.finish(Outcome.LATE, f"{late}, while {record.waiting_for}")
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        # A task cancelled before it began could not say so itself, and a deterministic engine would wait for it.
        for attempt, record in zip(attempts, records, strict=True):
            arena.policy.engine.release(attempt.session)
            arena.watch.end(record)
    for task in tasks:
        if not task.cancelled():
            task.result()  # a rollout does not raise: what comes here is a fault of ours, and keeps its traceback
    return records


async def _pending_at(
    close: _Close, tasks: Mapping[asyncio.Task[None], Rollout], watch: StallWatch
) -> tuple[set[asyncio.Task[None]], str]:
    """Wait for all tasks, or until the close; the tasks that are not done, and why no longer was waited for them."""
    clock, early = asyncio.get_running_loop().time, close.early
    pending = set(tasks)
    wanted: set[asyncio.Task[Any]] = set() if early is None else {asyncio.create_task(early.wanted.wait())}
    until = asyncio.ALL_COMPLETED if early is None else asyncio.FIRST_COMPLETED
    try:
        while pending and (left := close.at - clock()) > 0:
            ended = len(tasks) - len(pending)
            if early is not None and early.wanted.is_set() and ended >= early.enough:
                return pending, f"the group closed when {ended} of {len(tasks)} had ended"
            _, open_ = await asyncio.wait(pending | wanted, timeout=min(STALL_S, left), return_when=until)
            pending, wanted = open_ - wanted, wanted & open_
            watch.look()
    finally:
        for task in wanted:
            task.cancel()
    return pending, close.late


async def _run(attempt: Attempt, record: Rollout, arena: Arena, on_done: Callable[[Rollout], None] | None) -> None:
    with arena.episode() as call_tool:
        policy, grade = arena.policy, arena.grade
        if attempt.task.functions is not None:
            recorded = RecordedCalls(grade, attempt.task.functions)
            policy = replace(policy, tools=attempt.task.functions.tools)
            call_tool, grade = recorded.call, recorded.grade
        await rollout(
            attempt.task,
            policy,
            call_tool,
            grade,
            arena.budgets,
            key=address(attempt.session),
            session=attempt.session,
            prefill=attempt.prefill,
            into=record,
        )
    arena.watch.end(record)
    if on_done is not None:
        on_done(record)
