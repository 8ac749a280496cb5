"""An inspect-ai task over our rollout: its samples are our tasks, its solver plays them, its scorer reads the grade.

    inspect_ai.eval(inspect_task(session, session.tasks.evaluation("new_seeds", 100)), model="none")

Invariant: a rollout that failed by a fault of ours is an error of its sample, never a wrong answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from inspect_ai import Task as InspectTask
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from callwright.envs.adapters.player import Player
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.serving.errors import RunError

_PLAYED = "callwright"  # where a sample's metadata keeps what its rollout came to


def inspect_task(player: Player, tasks: Sequence[Task], name: str = "callwright") -> InspectTask:
    """The task for ``inspect_ai.eval``. The model is the player's own, so that inspect-ai's is ``none``."""
    samples = [Sample(id=task.key, input=task.question, target=task.answer) for task in tasks]
    return InspectTask(
        name=name,
        dataset=MemoryDataset(samples, name=name),
        solver=_played(player, {task.key: task for task in tasks}),
        scorer=_graded(),
    )


@solver  # type: ignore[untyped-decorator]
def _played(player: Player, tasks: dict[str, Task]) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        task = tasks[str(state.sample_id)]
        done = await asyncio.to_thread(partial(player.play, task, sample=state.epoch - 1))
        if not done.outcome.in_baseline:
            raise RunError(f"{done.outcome}: {done.trajectory.cause}")
        state.output = ModelOutput.from_content("callwright", done.solution or "")
        state.messages.append(state.output.message)
        state.metadata[_PLAYED] = _facts(done)
        return state

    return solve


def _facts(done: Rollout) -> dict[str, object]:
    return {
        "success": done.success,
        "outcome": str(done.outcome),
        "reward": done.total_reward,
        "calls": [call.body for call in done.calls],
        "rejections": [str(rejection.code) for rejection in done.rejections],
        "sampled_tokens": done.trajectory.sampled_tokens,
    }


@scorer(metrics=[accuracy(), stderr()])  # type: ignore[untyped-decorator]
def _graded() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        facts = state.metadata[_PLAYED]
        return Score(value=float(facts["success"]), answer=state.output.completion, metadata=facts)

    return score
