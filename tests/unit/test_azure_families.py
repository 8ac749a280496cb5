"""What the storage families promise without any storage: rows are addressed, fair, and evaluation has its own names."""

from __future__ import annotations

import re

import pytest

from callwright.envs.executors.azure.command_line import read_command
from callwright.envs.rewards.storage import same
from callwright.envs.tasks import SLICES, FamilySpec, Task, TaskSuite, WorldSpec, build_suite
from callwright.envs.tasks.azure import AZURE_FAMILIES
from callwright.envs.tasks.storage import Blob, Storage

pytestmark = pytest.mark.unit

WORLD = WorldSpec(entities=200, eval_entities=80, long_entities=40)


@pytest.fixture(scope="module")
def suite() -> TaskSuite:
    return build_suite({name: FamilySpec() for name in AZURE_FAMILIES}, WORLD, seed=5)


def about(task: Task) -> set[str]:
    """The names of the world that a task is about, as they stand in its gold commands."""
    words = re.findall(r"[A-Za-z]+", " ".join(step.arguments["azure_command"] for step in task.plan))
    return {word.upper() for word in words} | {word[1:] for word in words if word.startswith("T")}


def test_every_row_is_fair_rebuilt_and_allowed(suite: TaskSuite) -> None:
    tasks = suite.sample("train", 80)
    for part in SLICES:
        tasks += suite.evaluation(part, 40)
    assert {task.family for task in tasks} == set(AZURE_FAMILIES)
    for task in tasks:
        assert task.storage is not None
        assert suite.task(task.key) == task
        assert task.answer.lower() not in task.question.lower()
        assert (task.scorer == "any") == (task.storage.before.snapshot() != task.storage.after.snapshot())
        for step in task.plan:
            read_command(step.arguments["azure_command"])


def test_evaluation_asks_about_names_that_training_does_not(suite: TaskSuite) -> None:
    names = {pool: set(suite.world.names(pool)) for pool in ("train", "eval", "long")}
    for pool, tasks in {
        "train": suite.sample("train", 200),
        "eval": suite.evaluation("new_seeds", 80),
        "long": suite.evaluation("unseen_length", 80),
    }.items():
        assert all(about(task) & names[pool] for task in tasks)


def test_any_difference_counts() -> None:
    wanted = Storage({}, {"line": ("a", "b")}, {"T": ({"PartitionKey": "p", "RowKey": "r", "N": 1},)}).with_container(
        "box", {"x": Blob("text", {"k": "v"})}
    )
    held = wanted.snapshot()
    assert same(held, wanted)
    for other in (
        Storage(),
        wanted.with_container("more", {}),
        wanted.with_container("box", {}),
        wanted.with_container("box", {"x": Blob("text")}),
        wanted.with_container("box", {"x": Blob("other", {"k": "v"})}),
        wanted.with_container("box", {"x": Blob("text", {"k": "v"})}, {"k": "v"}),
        Storage(wanted.containers, {"line": ("b", "a")}, wanted.tables),
        Storage(wanted.containers, wanted.queues, {"T": ({"PartitionKey": "p", "RowKey": "r", "N": "1"},)}),
    ):
        assert not same(held, other)
