"""inspect-ai evaluates our tasks through our rollout; run in .adapters by test_adapters.py."""

from __future__ import annotations

import sys

import inspect_ai
from scripted import scripted, suite

from callwright.envs.adapters.inspect_task import inspect_task
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.training.experts import solution

family = suite()
tasks = family.evaluation("new_seeds", 4)


class Failing:
    """The last task meets a fault of ours."""

    def __init__(self, player: object) -> None:
        self._player = player

    def play(self, task: Task, **options: object) -> Rollout:
        if task is not tasks[3]:
            return self._player.play(task, **options)  # type: ignore[attr-defined, no-any-return]
        done = Rollout(task, 0)
        done.trajectory.finish(Outcome.INFRA_FAULT, "the broker is away")
        return done


with scripted(family, {tasks[0].question: [solution("no idea")]}) as player:
    (log,) = inspect_ai.eval(
        inspect_task(Failing(player), tasks),
        model="none",
        log_dir=sys.argv[1],
        display="none",
        fail_on_error=False,
        score_display=False,
    )
assert log.status == "success", log.error
assert log.samples is not None
by_key = {sample.id: sample for sample in log.samples}
scores = [by_key[task.key].scores for task in tasks]
assert [next(iter(score.values())).value if score else None for score in scores[:3]] == [0.0, 1.0, 1.0], scores
assert by_key[tasks[3].key].error is not None
assert "the broker is away" in by_key[tasks[3].key].error.message
facts = by_key[tasks[1].key].metadata["callwright"]
assert facts["success"] is True
assert facts["calls"][0].startswith('{"type":"web"')
assert by_key[tasks[1].key].output.completion == tasks[1].answer
print("inspect-ai: 2 of 3, and one error")
