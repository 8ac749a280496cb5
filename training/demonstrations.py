"""What the supervised start learns from: scripted solvers, or the rollouts of another model.

Invariant: every demonstration went through the one rollout function, so it is framed as the policy's own rollouts are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import Episodes, ungraded
from callwright.envs.rollout import Grader, rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.traces import read_traces
from callwright.envs.trajectory import Outcome
from callwright.serving.errors import RunError, UserError
from callwright.serving.progress import Progress, log
from callwright.training.experts import Habits, ScriptedEngine, script
from callwright.training.in_flight import at_once
from callwright.training.retold import retold
from callwright.training.sections.warm_start import WarmStage
from callwright.training.session import Session

CONCURRENT_TRACES = 64


def demonstrations(session: Session, stage: WarmStage, number: int, policy: Policy) -> list[Rollout]:
    """The rollouts that a stage learns: of scripted solvers, or those in ``warm_start.traces``.

    Raises UserError where the traces hold none, RunError where an executor failed.
    """
    config = session.config
    if config.warm_start.traces is None:
        tasks = session.tasks.sample("train", stage.traces, f"warm-{number}", 0)
        habits = Habits(guess=stage.guess, slip=stage.slip, stray=stage.stray, leave=stage.leave)
        log(f"warm start, stage {number + 1}: {stage.traces} traces of scripted solvers, then {stage.steps} steps")
        seed = f"{config.seed}|{number}"
        # The gold check says that gold plans are right: nothing is graded.
        places = at_once(config, CONCURRENT_TRACES)
        return session.loop.run(
            collect_traces(tasks, habits, policy, session.episode, ungraded, config.budgets, seed, places)
        )
    source = read_traces(Path(config.warm_start.traces))
    told, left_out = session.loop.run(retold(source, policy, config.budgets, stage.traces))
    reasons = "; ".join(f"{count} left out: {reason}" for reason, count in left_out.most_common())
    if not told:
        raise UserError(f"warm_start.traces={config.warm_start.traces}: nothing to learn from ({reasons})")
    log(f"warm start, stage {number + 1}: {len(told)} traces told again, then {stage.steps} steps; {reasons}")
    return told


async def collect_traces(
    tasks: Sequence[Task],
    habits: Habits,
    policy: Policy,
    episode: Episodes,
    grade: Grader,
    budgets: Budgets,
    seed: object,
    places: int = CONCURRENT_TRACES,
) -> list[Rollout]:
    """One scripted rollout a task, in order, ``places`` of them at once.

    Raises RunError when an executor failed: a trace must be whole.
    """
    limit = asyncio.Semaphore(places)

    async def one(index: int, task: Task, bar: Progress) -> Rollout:
        rng = random.Random(f"script|{seed}|{task.key}")
        scripted = replace(policy, engine=ScriptedEngine(policy.codec, script(task, habits, rng, policy.dialect)))
        async with limit:
            with episode() as call_tool:
                trace = await rollout(task, scripted, call_tool, grade, budgets, key=0, session=f"trace-{index}")
        if trace.outcome is Outcome.INFRA_FAULT:
            raise RunError(f"warm start: {trace.trajectory.cause}")
        bar.step()
        return trace

    with Progress("traces", total=len(tasks)) as bar:
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one(index, task, bar)) for index, task in enumerate(tasks)]
        except* RunError as failed:
            raise failed.exceptions[0] from None
    return [task.result() for task in running]
