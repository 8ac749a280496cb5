"""BFCL: rows become tools and gold calls, bfcl-eval's checker judges them, and a rollout is graded by its calls."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.benchmark_check import check_rows
from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rewards.grade import solves
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.benchmarks.benchmark import load_tasks
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.text_codec import TextCodec
from callwright.serving.protocol import DEFAULT_TOOLS
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import Reply
from callwright.training.experts import ScriptedEngine

pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed: make bfcl")
pytestmark = pytest.mark.integration

AREA = {
    "name": "shape.area",
    "description": "Area of a rectangle.",
    "parameters": {
        "type": "dict",
        "properties": {
            "width": {"type": "float", "description": "cm"},
            "sides": {"type": "array", "items": {"type": "integer"}, "description": "cm"},
            "unit": {"type": "string", "description": "of the result"},
        },
        "required": ["width"],
    },
}


def row(category: str, *accepted: object) -> Task:
    meta = {"category": category, "functions": [AREA]}
    return BENCHMARKS["bfcl"].task({"id": "r", "question": "Area?", "answer": list(accepted), "meta": meta})


ONE = row("simple_python", {"shape.area": {"width": [2.5], "sides": [[1, 2], ""], "unit": ["", "cm2"]}})
TWO = row("parallel", {"shape.area": {"width": [1.0]}}, {"shape.area": {"width": [2.0]}})
NONE = row("irrelevance")


async def no_call(call: ToolCall) -> Reply:
    raise AssertionError(f"a recorded call must not run: {call}")


def test_a_row_becomes_tools_and_a_gold_call() -> None:
    assert ONE.functions is not None
    (tool,) = ONE.functions.tools
    assert tool.name == "shape_area"
    assert tool.properties["width"]["type"] == "number"
    assert tool.properties["sides"] == {"type": "array", "description": "cm", "items": {"type": "integer"}}
    assert ONE.answer == '[{"shape_area": {"width": 2.5}}]'


@pytest.mark.parametrize(
    ("task", "calls", "right"),
    [
        (ONE, '[{"shape_area": {"width": 2.5}}]', True),
        (ONE, '[{"shape_area": {"width": 2.5, "sides": [1, 2], "unit": "cm2"}}]', True),
        (ONE, '[{"shape_area": {"width": 2}}]', False),
        (ONE, '[{"shape_area": {"width": 2.5, "depth": 1}}]', False),
        (ONE, '[{"shape_area": {"width": 2.5}}, {"shape_area": {"width": 2.5}}]', False),
        (ONE, '[{"other": {"width": 2.5}}]', False),
        (ONE, "[]", False),
        (TWO, '[{"shape_area": {"width": 2.0}}, {"shape_area": {"width": 1.0}}]', True),
        (TWO, '[{"shape_area": {"width": 2.0}}]', False),
        (NONE, "[]", True),
        (NONE, '[{"shape_area": {"width": 1.0}}]', False),
        (NONE, "", False),
    ],
)
async def test_calls_are_judged(task: Task, calls: str, right: bool) -> None:
    assert await solves(task, calls, no_call) is right


async def play(task: Task, *turns: str) -> Rollout:
    codec = TextCodec()
    policy = Policy(ScriptedEngine(codec, list(turns)), codec, DEFAULT_TOOLS, "hermes")
    budgets = Budgets(turn_tokens=1000, policy_tokens=4000, context=20000)
    arena = Arena(policy, lambda: nullcontext(no_call), grade, budgets)
    (rollout,) = await run_batch([Attempt(task, 0, "s")], arena, deadline_s=120)
    return rollout


def called(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "shape_area", "arguments": {arguments}}}\n</tool_call>'


async def test_a_rollout_is_graded_by_its_calls_and_nothing_runs() -> None:
    assert (await play(ONE, called('{"width": 2.5}'), "It is done.")).success
    assert not (await play(ONE, called('{"width": 3}'), "It is done.")).success
    assert not (await play(ONE, "I would say 2.5.")).success
    assert (await play(TWO, called('{"width": 1}') + called('{"width": 2.0}'), "Done.")).success
    assert (await play(NONE, "No function fits.")).success
    assert not (await play(NONE, "")).success
    refused = await play(ONE, called('{"width": "wide"}'), called('{"width": 2.5}'), "Done.")
    assert refused.success
    assert len(refused.rejections) == 1


async def test_an_unfinished_rollout_is_wrong_whatever_it_called() -> None:
    endless = "x" * 2000
    for task, turns in ((ONE, [called('{"width": 2.5}'), endless]), (NONE, [endless])):
        rollout = await play(task, *turns)
        assert rollout.outcome is Outcome.POLICY_FAULT
        assert rollout.reward is not None
        assert (rollout.success, rollout.reward.total) == (False, 0.0)


async def test_every_gold_call_of_the_sample_is_right_and_an_empty_answer_wrong() -> None:
    folder = os.environ.get("CALLWRIGHT_SAMPLES")
    if not folder:
        pytest.skip("CALLWRIGHT_SAMPLES is unset: it names the folder of the public samples")
    assert await check_rows(load_tasks(BENCHMARKS["bfcl"], Path(folder)), no_call) == []


async def test_every_gold_call_of_the_package_is_right() -> None:
    tasks = load_tasks(BENCHMARKS["bfcl"])
    assert len(tasks) > 1000
    assert await check_rows(tasks, no_call) == []
