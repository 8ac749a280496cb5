"""math-verify in its process: right answers, hedges, and texts that would hang or fill the memory of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callwright.envs.benchmark_check import check_rows
from callwright.envs.rewards import CallTool
from callwright.envs.rewards.grade import solves
from callwright.envs.rewards.judge import Judge, JudgeBroken
from callwright.envs.tasks.benchmarks.benchmark import load_tasks
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.task import Task
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import Reply

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'callwright[eval]'")
pytestmark = pytest.mark.integration

TWELVE = Task("k", "math500", "?", "12", scorer="math")


async def no_call(call: ToolCall) -> Reply:
    raise AssertionError(f"mathematics needs no call: {call}")


CALL: CallTool = no_call


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("12", True),
        (r"\frac{24}{2}", True),
        (r"The answer is \boxed{12}.", True),
        ("x = 12", True),
        (r"12\text{ cm}", True),
        ("13", False),
        ("12, 13", False),
        (r"12 \text{ or } 13", False),
        ("13 = 12", False),
        ("}{", False),
        ("", False),
    ],
)
async def test_answers(said: str, right: bool) -> None:
    assert await solves(TWELVE, said, CALL) is right


@pytest.mark.slow
async def test_a_text_that_hangs_the_judge_is_wrong_and_the_next_is_judged() -> None:
    judge = Judge("callwright.envs.rewards.math_judge", deadline_s=2.0)
    try:
        assert not await judge.ask({"said": "10^{10^{9}}", "accepted": ["12"]})
        # The first deadline is short so that the test is; a slow machine may need several tries for a judge to answer.
        assert any([await judge.ask({"said": "12", "accepted": ["12"]}) for _ in range(5)])
    finally:
        judge.close()


async def test_a_judge_that_cannot_start_is_a_fault_of_ours() -> None:
    with pytest.raises(JudgeBroken, match="nosuch"):
        await Judge("callwright.nosuch").ask({})


async def test_every_gold_answer_of_the_sample_is_right_and_an_empty_one_wrong() -> None:
    folder = os.environ.get("CALLWRIGHT_SAMPLES")
    if not folder:
        pytest.skip("CALLWRIGHT_SAMPLES is unset: it names the folder of the public samples")
    assert await check_rows(load_tasks(BENCHMARKS["math500"], Path(folder)), CALL) == []
