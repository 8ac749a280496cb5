"""The families about a storage account, on the real Azure CLI and Azurite: gold is paid, anything else is not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from services import running

from callwright.envs.executors.azure.warm_cli import Installation
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import AzureSettings, ExecutorSettings
from callwright.envs.rewards import Evidence, GradingFault, gold_check, grade, set_up
from callwright.envs.tasks import FamilySpec, Task, TaskSuite, WorldSpec, build_suite
from callwright.envs.tasks.azure import AZURE_FAMILIES
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

WORLD = WorldSpec(entities=300, eval_entities=100, long_entities=40)
FOLDER = AzureSettings().folder


@pytest.fixture(scope="module")
def suite() -> TaskSuite:
    return build_suite({name: FamilySpec() for name in AZURE_FAMILIES}, WORLD, seed=3)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executors() -> AsyncIterator[Executors]:
    if Installation.find(FOLDER) is None:
        pytest.skip("no Azure CLI and Azurite here: make azure")
    service = Executors(ExecutorSettings(tools=("azure",)))
    async with running(service):
        yield service


def tasks_of(suite: TaskSuite, family: str, n: int) -> list[Task]:
    return [suite.task(f"{family}/train/check/{index}") for index in range(n)]


@pytest.mark.parametrize("family", AZURE_FAMILIES)
async def test_gold_is_paid_and_empty_or_wrong_is_not(family: str, suite: TaskSuite, executors: Executors) -> None:
    tasks = [*tasks_of(suite, family, 2), suite.task(f"{family}/unseen_length/check/0")]
    assert await gold_check(tasks, executors.episode, concurrency=2) == []


@pytest.mark.parametrize("family", AZURE_FAMILIES)
async def test_the_right_deed_and_one_more_is_wrong(family: str, suite: TaskSuite, executors: Executors) -> None:
    (task,) = tasks_of(suite, family, 1)
    with executors.episode() as call:
        await set_up(task, call)
        for step in task.plan:
            assert (await call(ToolCall(step.tool, step.arguments))).status is CallStatus.OK
        assert (await grade(Evidence(task, task.answer), call)).success
        assert (await grade(Evidence(task, task.answer), call)).total == pytest.approx(1.1)
        assert not (await grade(Evidence(task, " "), call)).success
        extra = await call(ToolCall("azure", {"azure_command": "az storage container create --name one-more"}))
        assert extra.status is CallStatus.OK
        assert (await grade(Evidence(task, task.answer), call)).total == pytest.approx(0.1)


async def test_the_account_is_this_episodes(suite: TaskSuite, executors: Executors) -> None:
    """The deed done in one episode pays in no other, and an episode that was not filled cannot be read."""
    (task,) = tasks_of(suite, "azure_create", 1)
    with executors.episode() as one, executors.episode() as other:
        await set_up(task, one)
        await set_up(task, other)
        for step in task.plan:
            await one(ToolCall(step.tool, step.arguments))
        assert (await grade(Evidence(task, task.answer), one)).success
        assert not (await grade(Evidence(task, task.answer), other)).success
    with executors.episode() as empty, pytest.raises(GradingFault):
        await grade(Evidence(task, task.answer), empty)
