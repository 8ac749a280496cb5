"""A player without a model for the adapters' tests: it recites the gold turns of its tasks, or asks another engine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.budgets import Budgets
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks import FamilySpec, TaskSuite, WorldSpec, build_suite
from callwright.envs.tasks.task import Task
from callwright.serving.background_loop import BackgroundLoop
from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.engines.text_codec import TextCodec
from callwright.serving.protocol.tools import WEB
from callwright.training.experts import Habits, ScriptedEngine, script

BUDGETS = Budgets(turn_tokens=400, policy_tokens=4000, context=40000)
CODEC = TextCodec()


def suite() -> TaskSuite:
    return build_suite({"lookup": FamilySpec()}, WorldSpec(entities=60, eval_entities=40, long_entities=8), seed=1)


class Scripted:
    """``scripts`` are the turns by the question where they are not the gold ones."""

    def __init__(self, loop: BackgroundLoop, executors: Executors, scripts: Mapping[str, list[str]]) -> None:
        self._loop, self._executors, self._scripts = loop, executors, scripts

    def play(self, task: Task, *, sample: int = 0, engine: RemoteEngine | None = None) -> Rollout:
        turns = self._scripts.get(task.question) or script(task, Habits(), random.Random(0))
        policy = Policy(engine or ScriptedEngine(CODEC, list(turns)), CODEC, (WEB,), system_prompt=False)
        arena = Arena(policy, self._executors.episode, grade, BUDGETS)
        return self._loop.run(run_batch([Attempt(task, sample, "adapter")], arena, deadline_s=120))[0]


@contextmanager
def scripted(tasks: TaskSuite, scripts: Mapping[str, list[str]] | None = None) -> Iterator[Scripted]:
    """A player with a search over the tasks' own documents."""
    loop = BackgroundLoop()
    try:
        executors = loop.run(_started(tasks))
        try:
            yield Scripted(loop, executors, scripts or {})
        finally:
            loop.run(executors.close())
    finally:
        loop.close()


async def _started(tasks: TaskSuite) -> Executors:
    executors = Executors(ExecutorSettings(tools=("web",)), documents=tasks.documents())
    await executors.start()
    return executors


gold = partial(script, habits=Habits(), rng=random.Random(0))
