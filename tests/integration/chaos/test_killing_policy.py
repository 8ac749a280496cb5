"""A policy whose program kills the worker that runs it: it is charged, and its group keeps its baseline."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_checks import IN_BASELINE
from test_external_workers import BUDGETS, Scripts, settings
from worker_processes import worker

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.executors.service import Executors
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.serving.models import Loaded
from callwright.serving.protocol import CODE
from callwright.serving.queues.dispatcher import CallStatus
from callwright.training.groups import advantages

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

WORDS = ("executors.code.sandbox=none", "executors.code.workers=1", "executors.lease_s=1.5")
TASK = Task("t/0", "lookup", "say 12", "12")
GROUP = 4
KILLER = 2  # the row of the group whose program does it


@contextmanager
def workers(folder: Path) -> Iterator[list[int]]:
    """One worker after another, as under a supervisor; how each of them ended."""
    ends: list[int] = []
    over = threading.Event()

    def supervise() -> None:
        while not over.is_set():
            with worker(folder, "code", *WORDS, name=f"worker-{len(ends)}") as running:
                while not over.wait(0.05) and running.process.poll() is None:
                    pass
                if running.process.poll() is not None:
                    ends.append(running.ended())

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield ends
    finally:
        over.set()
        thread.join()


async def play(tiny: Loaded, folder: Path) -> list[Rollout]:
    attempts = [Attempt(TASK, sample, "run") for sample in range(GROUP)]
    commands = {attempt.session: f"echo {attempt.sample}" for attempt in attempts}
    commands[attempts[KILLER].session] = "kill -9 $PPID; sleep 5"
    async with Executors(settings(folder)) as executors:
        policy = Policy(Scripts(tiny, commands), tiny.codec, (CODE,), system_prompt=False)
        return await run_batch(attempts, Arena(policy, executors.episode, grade, BUDGETS), deadline_s=120)


def test_a_program_that_kills_every_worker_that_runs_it_is_charged(tiny: Loaded, tmp_path: Path) -> None:
    with workers(tmp_path) as ends:
        rows = asyncio.run(play(tiny, tmp_path))
    assert ends == [-signal.SIGKILL] * 2
    assert all(row.outcome in IN_BASELINE for row in rows), [row.trajectory.cause for row in rows]
    for row in rows:
        (call,) = row.calls
        expected = (CallStatus.LIMIT, "killed: the call brought down 2 workers")
        assert (call.status, call.cause) == (expected if row.sample == KILLER else (CallStatus.OK, ""))
    rewards = [row.total_reward for row in rows]
    assert None not in rewards
    assert len(advantages(rewards, GROUP)) == GROUP
