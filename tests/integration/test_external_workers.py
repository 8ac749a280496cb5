"""A run whose workers are other processes: rollouts through real queues, a worker's death in the middle, no worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from worker_processes import PATIENCE_S, QUEUES, WorkerRun, worker

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.budgets import Budgets
from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.tasks.task import Step, Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.engine import Completion, Request
from callwright.serving.models import Loaded
from callwright.serving.protocol import CODE, ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, command_queue
from callwright.serving.queues.dispatcher import CallStatus
from callwright.training.experts import ScriptedEngine, call, solution

pytestmark = pytest.mark.integration

WORDS = ("executors.code.sandbox=none", "executors.lease_s=1.5", "executors.code.timeout_s=60")
BUDGETS = Budgets(turn_tokens=800, policy_tokens=1600, context=4000)
HOW_TO_START = r"no worker takes from the queue commandqueue-code; start one with: callwright worker code CONFIG"


def settings(folder: Path, *, wait_s: float = PATIENCE_S) -> ExecutorSettings:
    return ExecutorSettings(
        tools=("code",),
        external=("code",),
        broker="sqlite",
        queues=folder / "queues.db",
        journal=folder / "journal.db",
        worker_wait_s=wait_s,
        timeout_s=PATIENCE_S,
        lanes=4,
    )


class Scripts(ScriptedEngine):
    """Every session runs its task's command, then gives the answer."""

    def __init__(self, tiny: Loaded, commands: dict[str, str]) -> None:
        super().__init__(tiny.codec, [])
        self._texts = {
            session: ScriptedEngine(tiny.codec, [call(Step("code", {"code_command": command})), solution("12")])
            for session, command in commands.items()
        }

    async def generate(self, request: Request) -> Completion:
        return await self._texts[request.session].generate(request)


@pytest.mark.slow
async def test_a_batch_outlives_a_worker(tiny: Loaded, tmp_path: Path) -> None:
    attempts = [Attempt(Task(f"t/{number}", "lookup", "say 12", "12"), 0, "run") for number in range(12)]
    gate = tmp_path / "gate"
    wait = f"until test -e {gate}; do sleep 0.05; done"
    commands = {attempt.session: f"{wait}; echo {number}" for number, attempt in enumerate(attempts)}
    with worker(tmp_path, "code", *WORDS, name="doomed") as doomed, worker(tmp_path, "code", *WORDS) as other:
        async with Executors(settings(tmp_path)) as executors:
            policy = Policy(Scripts(tiny, commands), tiny.codec, (CODE,), system_prompt=False)
            arena = Arena(policy, executors.episode, grade, BUDGETS)
            running = asyncio.create_task(run_batch(attempts, arena, deadline_s=2 * PATIENCE_S))
            await asyncio.to_thread(both_are_at_work, doomed, other)
            doomed.stop(signal.SIGKILL)
            doomed.ended()
            gate.touch()
            rows = await running
            other.stop()  # and with it the last command is settled, a moment after its reply
            assert await asyncio.to_thread(other.ended) == 0
            assert executors.counts["code"]["ok"] == len(attempts)
            assert executors.dispatcher.retired == 0
            assert await executors.broker.peek(command_queue("code")) == []
            assert await executors.broker.peek(REWARD_QUEUE) == []
    assert [row.outcome for row in rows] == [Outcome.SCORED] * len(attempts)
    for number, row in enumerate(rows):
        (only,) = row.calls
        assert json.loads(only.record)["stdout"] == f"{number}\n"


def both_are_at_work(*workers: WorkerRun) -> None:
    for each in workers:
        each.said("request accepted by code")


async def test_without_any_worker_the_start_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExecutorUnavailable, match=HOW_TO_START):
        async with Executors(settings(tmp_path, wait_s=0.5)):
            pass
    assert "waiting 0.5 s for a worker" in capsys.readouterr().err


async def test_a_call_that_no_worker_took_says_so(tmp_path: Path) -> None:
    with worker(tmp_path, "code", *WORDS) as only:
        async with Executors(settings(tmp_path)) as executors:
            only.stop()
            assert only.ended() == 0
            reply = await executors.dispatcher.call(ToolCall("code", {"code_command": "true"}), timeout_s=0.5)
            assert reply.status is CallStatus.INFRA_FAULT
            assert reply.cause.startswith("code: no worker takes from the queue commandqueue-code; start one with:")


@pytest.mark.slow
def test_eval_without_a_worker_is_one_line(tmp_path: Path) -> None:
    words = ["eval", "quickstart", *QUEUES, "executors.external=[web]", "executors.queue_s=0.5"]
    done = subprocess.run(
        [sys.executable, "-m", "callwright", *words],
        cwd=tmp_path,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("callwright: no worker takes from the queue commandqueue-web; start one with: callwright")
    assert "Traceback" not in done.stderr
