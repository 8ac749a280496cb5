"""HumanEval and MBPP rows in the real sandbox: gold programs pass, wrong, forging and unfinished ones do not."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from services import running

from callwright.envs.benchmark_check import check_rows
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.rewards.grade import solves
from callwright.envs.rewards.program_text import program_text
from callwright.envs.tasks.benchmarks.benchmark import load_tasks
from callwright.envs.tasks.benchmarks.registry import BENCHMARKS
from callwright.envs.tasks.task import Program, Task

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

PROMPT = "from typing import List\n\ndef helper(x):\n    return x + 1\n\ndef twice(xs: List[int]):\n    '''Double.'''\n"
HUMANEVAL = BENCHMARKS["humaneval"].task(
    {
        "id": "h",
        "question": PROMPT,
        "answer": "    return [2 * x for x in xs]\n",
        "meta": {
            "entry_point": "twice",
            "test": "def check(f):\n    assert f([1, helper(1)]) == [2, 4]\n    assert twice([]) == []\n",
        },
    }
)
MBPP = BENCHMARKS["mbpp"].task(
    {
        "id": "m",
        "question": "Count letters.",
        "answer": "import collections\r\ndef other(): pass\r\ndef count(s):\r\n  return collections.Counter(s)\r\n",
        "meta": {"tests": ["assert count('aba') == {'a': 2, 'b': 1}", "assert (count('')) == {}"]},
    }
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executors() -> AsyncIterator[Executors]:
    service = Executors(ExecutorSettings(tools=("code",), timeout_s=120.0))
    async with running(service):
        yield service


async def test_gold_programs_pass_and_empty_ones_do_not(executors: Executors) -> None:
    assert await check_rows([HUMANEVAL, MBPP], executors.call) == []


@pytest.mark.parametrize(
    ("solution", "passes"),
    [
        ("return [2 * x for x in xs]", True),
        ("def twice(xs):\n    return [x + x for x in xs]", True),
        ("Here it is:\n```python\ndef twice(xs):\n    return [x + x for x in xs]\n```\nDone.", True),
        ("```\nprint(1)\n```\n```py\ndef twice(xs): return [x + x for x in xs]\n```", True),
        ("def twice(xs):\n    return xs", False),
        ("def other(xs):\n    return [2 * x for x in xs]", False),
        ("def twice(xs):\n    exit(0)", False),
        ("def check(f): pass\ndef twice(xs):\n    return xs", False),
        ("class Same(list):\n    def __eq__(self, other): return True\ndef twice(xs):\n    return Same()", False),
        pytest.param("def twice(xs):\n    while True: pass", False, marks=pytest.mark.slow),
    ],
)
async def test_programs(solution: str, passes: bool, executors: Executors) -> None:
    assert await solves(HUMANEVAL, solution, executors.call) is passes


async def test_a_body_goes_on_from_its_prompt() -> None:
    program = Program("f", "def f():\n")
    assert program_text("return 1", program) == "def f():\n    return 1"
    assert program_text("    return 1", program) == "def f():\n    return 1"
    assert program_text("def f(): return 1", program) == "def f(): return 1"
    assert program_text("def g(): return 1", Program("f")) == "def g(): return 1"


def sampled(name: str, limit: int | None) -> list[Task]:
    folder = os.environ.get("CALLWRIGHT_SAMPLES")
    if not folder:
        pytest.skip("CALLWRIGHT_SAMPLES is unset: it names the folder of the public samples")
    return list(load_tasks(BENCHMARKS[name], Path(folder), limit))


@pytest.mark.parametrize("limit", [10, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
async def test_gold_programs_of_the_sample(name: str, limit: int | None, executors: Executors) -> None:
    assert await check_rows(sampled(name, limit), executors.call) == []
