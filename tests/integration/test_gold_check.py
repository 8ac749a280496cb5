"""Every family's gold plan through the real queues and executors, and unit tests that are run in the real sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from services import running

from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import CodeSettings, ExecutorSettings
from callwright.envs.rewards import gold_check, solves
from callwright.envs.tasks import FAMILIES, SLICES, FamilySpec, Task, TaskSuite, WorldSpec, build_suite
from callwright.envs.tasks.azure import AZURE_FAMILIES
from callwright.envs.tasks.computations import KINDS

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

HARD: dict[str, dict[str, Any]] = {
    "lookup": {"hops": [1, 2, 3]},
    "compute": {"kinds": list(KINDS), "base_digits": [2, 20], "exponent_digits": [2, 12], "modulus_digits": [2, 20]},
    "unit_tests": {"levels": ["linear", "pipeline", "filter"]},
    "direct": {"rules": ["backwards", "next"]},
}
WORLD = WorldSpec(entities=300, eval_entities=100, long_entities=40, extra_attributes=2, distractors=0.5, stale=0.5)


@pytest.fixture(scope="module")
def suite() -> TaskSuite:
    names = [name for name in FAMILIES if name not in AZURE_FAMILIES]  # those are checked in test_azure_tasks.py
    return build_suite({name: FamilySpec(dials=HARD.get(name, {})) for name in names}, WORLD, seed=3)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executors(suite: TaskSuite) -> AsyncIterator[Executors]:
    # What loops for ever ends by its processor time; the wall clock is the busy machine's, and generous.
    settings = ExecutorSettings(per_tool={"code": CodeSettings(timeout_s=20)}, timeout_s=120, deadline_s=90)
    service = Executors(settings, documents=suite.documents())
    async with running(service):
        yield service


async def test_training_rows(suite: TaskSuite, executors: Executors) -> None:
    assert await gold_check(suite.sample("train", 120), executors.episode) == []


@pytest.mark.parametrize("part", SLICES)
async def test_evaluation_rows(part: Any, suite: TaskSuite, executors: Executors) -> None:
    assert await gold_check(suite.evaluation(part, 36), executors.episode) == []


async def test_a_search_for_one_result_finds_the_current_document(suite: TaskSuite, executors: Executors) -> None:
    plain = build_suite({"lookup": FamilySpec()}, WORLD.model_copy(update={"stale": 0.0}), seed=3)
    assert plain.world.spec.k == 1
    async with Executors(executors.settings, documents=plain.documents()) as service:
        assert await gold_check(plain.evaluation("new_seeds", 40), service.episode) == []


@pytest.mark.parametrize(
    ("solution", "passes"),
    [
        ("lambda x: x * 2", True),
        ("from typing import List\ndef double(x: int) -> int:\n    return x * 2", True),
        ("lambda x: x + 2", False),
        ("exit(0)", False),
        ("import os\nos.kill(os.getppid(), 9)", False),
        pytest.param("def answer(x):\n    while True: pass", False, marks=pytest.mark.slow),
        ("def answer(x):\n    return open('/proc/1/cmdline') and x * 2", False),
        ("def answer(x):\n    return [0] * 10**12", False),
    ],
)
async def test_unit_tests_in_the_sandbox(solution: str, passes: bool, executors: Executors) -> None:
    task = Task("k", "unit_tests", "write f.", "lambda x:2*x", tests="assert answer(4) == 8\nassert answer(7) == 14")
    assert await solves(task, solution, executors.call) is passes
