"""BFCL multi-turn: wishes one after another to simulated services, judged by bfcl-eval, in the dialects."""

from __future__ import annotations

import ast
import json
from contextlib import nullcontext

import pytest

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.benchmark_check import check_rows
from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.recorded_calls import call_text
from callwright.envs.rewards import grade
from callwright.envs.rewards.grade import SCENARIO, solves
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.benchmarks.benchmark import load_tasks
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Given, Outcome
from callwright.serving.engines.text_codec import TextCodec
from callwright.serving.protocol import DEFAULT_TOOLS, get_dialect
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus, Reply
from callwright.training.experts import ScriptedEngine

pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed: make bfcl")
pytestmark = pytest.mark.integration

DIALECTS = ("hermes", "tags")


async def no_call(call: ToolCall) -> Reply:
    raise AssertionError(f"no executor of ours may run it: {call}")


@pytest.fixture(scope="module")
def task() -> Task:
    """The first row whose gold calls name all of their arguments."""
    return next(task for task in load_tasks(BENCHMARKS["bfcl_multi_turn"]) if _named(task))


def _named(task: Task) -> bool:
    return all(not ast.parse(text, mode="eval").body.args for text in _gold(task))  # type: ignore[attr-defined]


def _gold(task: Task) -> list[str]:
    return [text for turn in json.loads(task.answer) for text in turn]


def said(text: str, dialect: str) -> str:
    """A gold call as the dialect writes it."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    arguments = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
    return get_dialect(dialect).render_call(ToolCall(node.func.id, arguments))


def script(task: Task, dialect: str) -> list[list[str]]:
    """The gold turns: for each wish its calls, one a turn, and a word when it is done."""
    done = get_dialect(dialect).render_solution("Done.")
    return [[*(said(text, dialect) for text in turn), done] for turn in json.loads(task.answer)]


async def play(task: Task, dialect: str, turns: list[list[str]]) -> Rollout:
    codec = TextCodec()
    policy = Policy(ScriptedEngine(codec, [text for turn in turns for text in turn]), codec, DEFAULT_TOOLS, dialect)
    budgets = Budgets(turn_tokens=1000, policy_tokens=10000, context=200000, calls=40)
    arena = Arena(policy, lambda: nullcontext(no_call), grade, budgets)
    (rollout,) = await run_batch([Attempt(task, 0, "s")], arena, deadline_s=120)
    return rollout


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_gold_calls_succeed_and_their_results_are_read(task: Task, dialect: str) -> None:
    done = await play(task, dialect, script(task, dialect))
    assert (done.outcome, done.success, done.rejections) == (Outcome.SCORED, True, [])
    assert len(done.answered) == 1 + len(task.followups)
    assert all(record.status is CallStatus.OK for record in done.calls)
    given = "".join(TextCodec().decode(part.ids) for part in done.trajectory.segments[1:] if isinstance(part, Given))
    assert all(wish in given for wish in task.followups)
    result = json.loads(done.calls[0].record)["result"]
    assert result.strip('{}"')[:10] in given.replace("\\", "")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_wish_left_out_or_done_late_is_wrong(task: Task, dialect: str) -> None:
    first, *others = script(task, dialect)
    assert not (await play(task, dialect, [first[-1:], *others])).success
    late = [first[-1:], [*first[:-1], *others[0]], *others[1:]]
    assert not (await play(task, dialect, late)).success
    unfinished = await play(task, dialect, [first])
    assert not unfinished.success


async def test_what_a_service_refuses_is_an_observation(task: Task) -> None:
    assert task.functions is not None
    wrong = [ToolCall("cd", {"folder": "nowhere"})]
    if "cd" not in {tool.name for tool in task.functions.tools}:
        pytest.skip("the row has no file system")
    turn = [get_dialect("hermes").render_call(call) for call in wrong]
    done = await play(task, "hermes", [turn + script(task, "hermes")[0], *script(task, "hermes")[1:]])
    assert "error" in done.calls[0].record
    assert done.success


async def test_a_killed_judge_loses_no_state(task: Task) -> None:
    assert task.functions is not None
    assert task.functions.scenario is not None
    scenario = task.functions.scenario
    question = {"id": scenario.id, "classes": scenario.classes, "begins": scenario.begins, "turns": [_gold(task)]}
    first = await SCENARIO.answer(question)
    SCENARIO.close()
    assert await SCENARIO.answer(question) == first
    assert len(first) == len(_gold(task))


def test_a_value_is_written_as_a_literal() -> None:
    text = call_text("post", {"content": "'); import os #", "on": True, "tags": ["#a"], "n": None})
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert [ast.literal_eval(word.value) for word in call.keywords] == ["'); import os #", True, ["#a"], None]


async def test_the_first_gold_rows_are_right_and_empty_ones_wrong() -> None:
    tasks = load_tasks(BENCHMARKS["bfcl_multi_turn"], limit=10)
    assert await check_rows(tasks, no_call) == []
    nothing = json.dumps([[] for _ in json.loads(tasks[0].answer)])
    assert not await solves(tasks[0], nothing, no_call)


@pytest.mark.slow
async def test_every_gold_row_of_the_package_is_right() -> None:
    tasks = load_tasks(BENCHMARKS["bfcl_multi_turn"])
    assert len(tasks) == 200
    assert await check_rows(tasks, no_call) == []
