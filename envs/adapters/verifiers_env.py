"""A verifiers environment over our tasks: verifiers brings the model and keeps the trace, our rollout is the loop.

    env = environment(session, session.tasks.evaluation("new_seeds", 100))
    async with env.serving():
        episode = await env.run_episode(next(iter(env.taskset)), context)

Every model call goes through the endpoint that verifiers intercepts, in the wire of OpenAI. Invariant: a rollout that
failed by a fault of ours is an error of its trace, never a reward.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import verifiers.v1 as vf

from callwright.envs.adapters.player import Player
from callwright.envs.tasks.task import Task
from callwright.serving.engines.remote import RemoteEngine

_NAME = "callwright_tasks"
_PLAYED = "callwright"


class TaskRow(vf.Task[vf.TaskData]):  # type: ignore[misc]
    """One of our tasks, by its key; what its rollout earned is in the trace's ``info``."""

    @vf.reward  # type: ignore[untyped-decorator]
    async def reward(self, trace: vf.Trace) -> float:
        """The total of our reward function."""
        return float(trace.info[_PLAYED]["reward"])

    @vf.metric  # type: ignore[untyped-decorator]
    async def success(self, trace: vf.Trace) -> float:
        """Whether the answer was right."""
        return float(trace.info[_PLAYED]["success"])


def environment(player: Player, tasks: Sequence[Task]) -> vf.Env:
    """The environment of these tasks, with one agent that plays them in this process."""
    rows = {task.key: task for task in tasks}

    class Rows(vf.Taskset[TaskRow, vf.TasksetConfig]):  # type: ignore[misc]
        def load(self) -> Iterator[TaskRow]:
            for task in tasks:
                yield TaskRow(vf.TaskData(id=task.key, prompt=task.question), self.config.task)

    class Loop(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self,
            ctx: vf.ModelContext,
            trace: vf.Trace,
            runtime: vf.Runtime,
            endpoint: str,
            secret: str,
            mcp_urls: dict[str, str],
            data: vf.TaskData,
        ) -> vf.ProgramResult:
            engine = RemoteEngine("openai", endpoint.removesuffix("/v1"), ctx.model, key=secret)
            try:
                done = await asyncio.to_thread(partial(player.play, rows[data.id], engine=engine))
            finally:
                engine.close()
            if not done.outcome.in_baseline:
                raise vf.HarnessError(f"{done.outcome}: {done.trajectory.cause}")
            trace.info[_PLAYED] = {
                "reward": done.total_reward,
                "success": done.success,
                "outcome": str(done.outcome),
                "calls": [call.body for call in done.calls],
            }
            return vf.ProgramResult(exit_code=0, stdout=done.solution or "", stderr="")

    return vf.SingleAgentEnv(_config(Rows, Loop))


def _config(rows: type[Any], loop: type[Any]) -> vf.SingleAgentEnvConfig:
    # verifiers finds a taskset and a harness by the name of a module, so one is made for them.
    name = f"{_NAME}_{len([found for found in sys.modules if found.startswith(_NAME)])}"
    module = ModuleType(name)
    module.__dict__.update({"Rows": rows, "Loop": loop, "__all__": ["Rows", "Loop"]})
    sys.modules[name] = module
    agent = vf.AgentConfig(harness={"id": name}, runtime=vf.SubprocessConfig())
    return vf.SingleAgentEnvConfig(taskset={"id": name}, agent=agent)
