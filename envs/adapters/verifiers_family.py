"""A task family whose rows and scores are a verifiers taskset's: to be declared in a module that a config names.

    FAMILIES = {"their_tasks": family_of(TheirTaskset(TheirConfig()))}

A task's prompt is the question; our rollout with our tools answers it, and the task's own rewards are computed from a
trace of that answer. Limits: tasks whose scoring needs their runtime or their own tools are refused, and the scoring
runs in this process, because it is code that the user installed; it must be as careful with a model's text as verifiers
asks.
"""

from __future__ import annotations

from typing import Any, ClassVar

import verifiers.v1 as vf

from callwright.envs.tasks.family import Dials, Draw, Family, Row, Slice
from callwright.serving.errors import UserError


class TasksetDials(Dials):
    """No dials: the rows are the taskset's."""


def family_of(taskset: vf.Taskset, tools: tuple[str, ...] = ("web", "code")) -> type[Family[TasksetDials]]:
    """The family of a taskset that ends. Raises UserError for one that does not, or needs tools of its own."""
    kind = type(taskset)
    if not taskset.bounded:
        raise UserError(f"{kind.__name__} never ends: take a part of it, as in taskset.take(1000)")
    if kind.toolsets(taskset.config) or kind.task_type().toolsets(taskset.config.task):
        raise UserError(f"{kind.__name__} brings tools of its own, which run in verifiers alone")
    rows = list(taskset)
    if not rows:
        raise UserError(f"{kind.__name__} has no task")
    names = tools

    class TasksetFamily(Family[TasksetDials]):
        dials_type = TasksetDials
        slices: ClassVar[frozenset[Slice]] = frozenset({"new_seeds"})
        tools = names

        def row(self, draw: Draw) -> Row:
            task = draw.rng.choice(rows)
            return Row(
                question=task.data.prompt_text,
                answer=str(getattr(task.data, "answer", "") or f"task {task.key}"),
                template=kind.__name__,
                content=task.key,
                grounded=False,
                score=_Score(task),
            )

    return TasksetFamily


class _Score:
    """What a solution is worth by the task's own rewards, weighed and summed."""

    def __init__(self, task: vf.Task) -> None:
        self._task = task

    async def __call__(self, solution: str) -> float:
        trace = _trace(self._task, solution)
        await self._task.score(trace)
        return float(trace.reward)


def _trace(task: vf.Task, solution: str) -> Any:
    """A finished trace of one answer to the prompt."""
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig())),
        nodes=[
            vf.MessageNode(message=vf.UserMessage(content=task.data.prompt_text)),
            vf.MessageNode(parent=0, message=vf.AssistantMessage(content=solution), sampled=True),
        ],
        is_completed=True,
        ok=True,
    )
