"""The supervised start: what a trace trains on, and that training on it lowers the loss of just that."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from callwright.envs.budgets import Budgets
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Step, Task
from callwright.envs.trajectory import Given, Sampled, Trajectory
from callwright.serving.errors import RunError
from callwright.serving.models import Loaded
from callwright.serving.protocol import DEFAULT_TOOLS
from callwright.training.demonstrations import collect_traces
from callwright.training.experts import Habits, ScriptedEngine, call, script, solution
from callwright.training.warm_start import fine_tune, labelled

pytestmark = pytest.mark.integration

DOCUMENTS = [("BCDF", "the code of BCDF is 481."), ("GHJK", "the code of GHJK is 77.")]
PLAN = Step("web", {"q": "BCDF", "k": 1})
TASK = Task("t/0", "lookup", "code of BCDF?", "481", plan=(PLAN,), guesses=("12", "13"))
OTHER = Task("t/1", "lookup", "code of GHJK?", "77", plan=(Step("web", {"q": "GHJK", "k": 1}),), guesses=("12",))
BUDGETS = Budgets(turn_tokens=100, policy_tokens=300, context=600)


async def traces_of(tiny: Loaded, service: Executors, habits: Habits, seed: int = 0) -> list[Rollout]:
    policy = Policy(ScriptedEngine(tiny.codec, []), tiny.codec, DEFAULT_TOOLS, system_prompt=False)
    return await collect_traces([TASK, OTHER], habits, policy, service.episode, grade, BUDGETS, seed)


def test_a_script_follows_its_habits_and_its_generator() -> None:
    assert script(TASK, Habits(), random.Random(0)) == [call(PLAN), solution("481")]
    assert script(TASK, Habits(guess=1.0), random.Random(0)) in ([solution("12")], [solution("13")])
    left = script(TASK, Habits(leave=1.0), random.Random(0))
    assert left[:1] == [call(PLAN)]
    assert left[1] in (solution("12"), solution("13"))
    habits = Habits(guess=0.3, leave=0.3)
    every = [script(TASK, habits, random.Random(seed)) for seed in range(20)]
    assert every == [script(TASK, habits, random.Random(seed)) for seed in range(20)]
    assert len({tuple(turns) for turns in every}) > 2


def test_a_needless_search_comes_first_unless_the_plan_searches_anyway() -> None:
    assert script(TASK, Habits(stray=1.0), random.Random(0)) == [call(PLAN), solution("481")]
    compute = Task("t/2", "compute", "12 plus 30?", "42", plan=(Step("code", {"code_command": "echo 42"}),))
    stray = call(Step("web", {"q": "12", "k": 1}))
    assert script(compute, Habits(stray=1.0), random.Random(0)) == [stray, call(compute.plan[0]), solution("42")]


def test_labels_are_what_was_sampled() -> None:
    trajectory = Trajectory()
    for part in (Given((1, 2)), Sampled((3, 4), (0.0, 0.0)), Given((5,)), Sampled((6,), (0.0,))):
        trajectory.append(part)
    assert labelled(trajectory, on_given=False) == {
        "input_ids": [1, 2, 3, 4, 5, 6],
        "labels": [-100, -100, 3, 4, -100, 6],
    }
    assert labelled(trajectory, on_given=True)["labels"] == [-100, -100, 3, 4, 5, 6]


async def test_traces_come_in_order_and_do_not_depend_on_anything_else(tiny: Loaded) -> None:
    async with Executors(ExecutorSettings(tools=("web",)), documents=DOCUMENTS) as service:
        traces = await traces_of(tiny, service, Habits())
        again = await traces_of(tiny, service, Habits())
        guesses = await traces_of(tiny, service, Habits(guess=1.0))
    assert [trace.task.key for trace in traces] == ["t/0", "t/1"]
    assert all(trace.success for trace in traces)
    assert [trace.trajectory.ids for trace in again] == [trace.trajectory.ids for trace in traces]
    assert not any(trace.success or trace.calls for trace in guesses)


async def test_a_trace_that_an_executor_spoilt_ends_the_run(tiny: Loaded) -> None:
    class Broken:
        name = "web/broken"

        async def start(self) -> None: ...

        async def close(self) -> None: ...

        async def run(self, call: Any) -> Any:
            raise OSError("disk gone")

    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": Broken()}) as service:
        with pytest.raises(RunError, match=r"web/broken.*disk gone"):
            await traces_of(tiny, service, Habits())


@pytest.mark.parametrize("muon_lr", [None, 0.01])
async def test_fine_tuning_learns_what_was_sampled(tiny: Loaded, tmp_path: Path, muon_lr: float | None) -> None:
    async with Executors(ExecutorSettings(tools=("web",)), documents=DOCUMENTS) as service:
        traces = await traces_of(tiny, service, Habits())
    model = copy.deepcopy(tiny.model)
    rows = [labelled(trace.trajectory, on_given=False) for trace in traces] * 4

    def loss_of(row: dict[str, list[int]]) -> float:
        with torch.no_grad():
            ids, labels = (torch.tensor([row[key]]) for key in ("input_ids", "labels"))
            return float(model(input_ids=ids, labels=labels).loss)

    before = loss_of(rows[0])
    losses = fine_tune(
        model,
        tiny.tokenizer,
        rows,
        steps=20,
        batch=4,
        lr=3e-3,
        muon_lr=muon_lr,
        seed=0,
        folder=tmp_path,
        trl={"logging_steps": 5, "use_cpu": True, "lr_scheduler_type": "constant"},
    )
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert loss_of(rows[0]) < before - 0.5
    assert not model.training
