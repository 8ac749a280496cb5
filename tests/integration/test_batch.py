"""A batch closes at its deadline: what still ran is late, keeps its evidence, and a stall says who waits for what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callwright.envs import batch
from callwright.envs.batch import Arena, Attempt, Early, run_batch
from callwright.envs.budgets import Budgets
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.tasks.task import Step, Task
from callwright.envs.trajectory import Outcome, Sampled
from callwright.serving.engines.engine import Completion, Request
from callwright.serving.models import Loaded
from callwright.serving.protocol import WEB, ToolCall
from callwright.training.experts import ScriptedEngine, call, solution

pytestmark = pytest.mark.integration

SEARCH = Task("t/search", "lookup", "code of BCDF?", "481", plan=(Step("web", {"q": "BCDF", "k": 1}),))
ANSWER = Task("t/answer", "lookup", "say 12", "12")
BUDGETS = Budgets(turn_tokens=100, policy_tokens=300, context=600)


class Stuck:
    """Never answers; says when it was asked."""

    name = "stuck-search"

    async def start(self) -> None: ...

    async def run(self, call: ToolCall) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    async def close(self) -> None: ...


class ByTask(ScriptedEngine):
    """The search for sessions that search, the answer for the others; remembers what was released."""

    def __init__(self, tiny: Loaded) -> None:
        super().__init__(tiny.codec, [])
        self._codec_ = tiny.codec
        self.released: set[str] = set()

    async def generate(self, request: Request) -> Completion:
        text = call(SEARCH.plan[0]) if SEARCH.key in request.session else solution("12")
        return await ScriptedEngine(self._codec_, [text]).generate(request)

    def release(self, session: str) -> None:
        self.released.add(session)


async def test_the_deadline_closes_the_batch(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "STALL_S", 0.2)
    attempts = [Attempt(task, sample, "run") for task in (SEARCH, ANSWER) for sample in range(3)]
    engine, ended = ByTask(tiny), []
    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Stuck()}) as executors:
        arena = Arena(Policy(engine, tiny.codec, (WEB,), system_prompt=False), executors.episode, grade, BUDGETS)
        rows = await run_batch(attempts, arena, deadline_s=1.0, on_done=ended.append)

    late, answered = rows[:3], rows[3:]
    assert [row.outcome for row in rows] == [Outcome.LATE] * 3 + [Outcome.SCORED] * 3
    assert all(row.success for row in answered)
    assert {id(row) for row in ended} == {id(row) for row in answered}
    for row in late:
        assert row.total_reward is None
        assert "after 1 s" in row.trajectory.cause
        assert "web" in row.trajectory.cause
        assert any(isinstance(segment, Sampled) for segment in row.trajectory.segments)  # what it had sampled is kept
    assert engine.released == {attempt.session for attempt in attempts}
    stalled = [line for line in capsys.readouterr().err.splitlines() if line.startswith("no rollout ended")]
    assert stalled
    assert "3 while" in stalled[-1]
    assert "web" in stalled[-1]


async def test_a_stall_is_told_once_for_all_that_share_an_arena(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "STALL_S", 0.5)
    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Stuck()}) as executors:
        policy = Policy(ByTask(tiny), tiny.codec, (WEB,), system_prompt=False)
        arena = Arena(policy, executors.episode, grade, BUDGETS)
        groups = [[Attempt(SEARCH, sample, f"run {group}") for sample in range(2)] for group in range(4)]
        await asyncio.gather(*(run_batch(group, arena, deadline_s=2.0) for group in groups))
    stalled = [line for line in capsys.readouterr().err.splitlines() if line.startswith("no rollout ended")]
    assert 1 <= len(stalled) <= 4
    assert "8 while waiting for the executor of web" in stalled[-1]


async def test_a_batch_closes_early_when_it_is_wanted_and_enough_have_ended(tiny: Loaded) -> None:
    attempts = [Attempt(task, sample, "run") for task in (SEARCH, ANSWER) for sample in range(3)]
    engine, ended, wanted = ByTask(tiny), [], asyncio.Event()
    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Stuck()}) as executors:
        arena = Arena(Policy(engine, tiny.codec, (WEB,), system_prompt=False), executors.episode, grade, BUDGETS)
        run = asyncio.create_task(
            run_batch(attempts, arena, deadline_s=60.0, on_done=ended.append, early=Early(wanted, enough=3))
        )
        async with asyncio.timeout(30):
            while len(ended) < 3:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert not run.done(), "nobody wants it yet"
        wanted.set()
        async with asyncio.timeout(30):
            rows = await run
    assert [row.outcome for row in rows] == [Outcome.LATE] * 3 + [Outcome.SCORED] * 3
    assert all("closed when 3 of 6 had ended, while" in row.trajectory.cause for row in rows[:3])
    assert engine.released == {attempt.session for attempt in attempts}


async def test_a_wanted_batch_waits_until_enough_have_ended(tiny: Loaded) -> None:
    attempts = [Attempt(task, sample, "run") for task in (SEARCH, ANSWER) for sample in range(3)]
    wanted = asyncio.Event()
    wanted.set()
    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Stuck()}) as executors:
        policy = Policy(ByTask(tiny), tiny.codec, (WEB,), system_prompt=False)
        arena = Arena(policy, executors.episode, grade, BUDGETS, in_flight=4)
        rows = await run_batch(attempts, arena, deadline_s=1.0, early=Early(wanted, enough=4))
    assert [row.outcome for row in rows] == [Outcome.LATE] * 3 + [Outcome.SCORED] + [Outcome.LATE] * 2
    assert "closed after 1 s" in rows[0].trajectory.cause


async def test_a_cancelled_batch_cancels_its_rollouts(tiny: Loaded) -> None:
    engine = ByTask(tiny)
    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Stuck()}) as executors:
        arena = Arena(Policy(engine, tiny.codec, (WEB,), system_prompt=False), executors.episode, grade, BUDGETS)
        running = asyncio.create_task(run_batch([Attempt(SEARCH, 0, "run")], arena, deadline_s=60.0))
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert engine.released == {Attempt(SEARCH, 0, "run").session}


async def test_a_large_batch_goes_in_waves_and_nobodys_clock_runs_while_it_waits(tiny: Loaded) -> None:
    attempts = [Attempt(ANSWER, sample, "run") for sample in range(7)]
    at_once = highest = 0

    class Slow(ByTask):
        async def generate(self, request: Request) -> Completion:
            nonlocal at_once, highest
            at_once += 1
            highest = max(highest, at_once)
            await asyncio.sleep(0.3)
            at_once -= 1
            return await super().generate(request)

    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Stuck()}) as executors:
        policy = Policy(Slow(tiny), tiny.codec, (WEB,), system_prompt=False)
        budgets = Budgets(turn_tokens=100, policy_tokens=300, context=600, wall_s=0.8)
        arena = Arena(policy, executors.episode, grade, budgets, in_flight=2)
        rows = await run_batch(attempts, arena, deadline_s=60.0)
    assert highest == 2
    assert [row.sample for row in rows] == list(range(7))
    assert all(row.outcome is Outcome.SCORED for row in rows)
