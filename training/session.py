"""What a run holds while it runs: the model and its engine, the tasks, the executors, and the loop they live on.

Invariant: everything that ``open_session`` starts is closed on every way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformers.utils import logging as transformers_logging

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.budgets import Budgets
from callwright.envs.executors.executor import Executor
from callwright.envs.executors.sandbox import Limits
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import CodeSettings, ExecutorSettings
from callwright.envs.rewards import grade
from callwright.envs.rollout import Policy, Rollout
from callwright.envs.tasks.source import TaskSource, open_source
from callwright.serving.engines.engine import Sampling
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded
from callwright.serving.protocol import DEFAULT_TOOLS, Tool, ToolCall
from callwright.serving.queues.dispatcher import Reply
from callwright.training.background_loop import BackgroundLoop
from callwright.training.config import Config

IN_FLIGHT_PER_ROW = 4  # rollouts at once per row of the engine: while some wait for tools, others decode
STUCK_AFTER_S = 15.0  # beyond its tool's own time limit, an executor that has not answered is stuck


@dataclass(slots=True)
class Session:
    """One run's parts. ``run`` is the only way rollouts are made in training and evaluation."""

    config: Config
    tasks: TaskSource
    executors: Executors
    loop: BackgroundLoop
    loaded: Loaded | None = None
    engine: TransformersEngine | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in DEFAULT_TOOLS if tool.name in self.config.tools)

    def adopt(self, loaded: Loaded, model: Any = None) -> None:
        """Serve this model from now on (``model``: the same weights under a trainer's wrapper)."""
        if self.engine is not None:
            self.engine.close()
        self.loaded = loaded
        engine = self.config.engine
        self.engine = TransformersEngine(
            loaded.model if model is None else model,
            rows=engine.max_batch,
            context=engine.max_context,
            barrier=self.config.deterministic,
        )

    def policy(self, temperature: float) -> Policy:
        """The served model as a policy, with this config's dialect, tools and prompt."""
        if self.engine is None or self.loaded is None:
            raise RuntimeError("no model is being served yet")
        return Policy(
            self.engine,
            self.loaded.codec,
            self.tools,
            self.config.dialect,
            Sampling(temperature),
            self.config.system_prompt == "full",
        )

    async def call_tool(self, call: ToolCall) -> Reply:
        """One call through the broker, with its tool's own deadline."""
        timeouts = {name: getattr(self.config.executors, name).timeout_s for name in self.config.tools}
        # The sandbox ends a program at its own time limit; ours must not come first.
        return await self.executors.call(call, timeout_s=timeouts.get(call.name, 10.0) + self.config.executors.queue_s)

    def run(
        self,
        attempts: Sequence[Attempt],
        *,
        temperature: float,
        deadline_s: float,
        budgets: Budgets | None = None,
        on_done: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """Run attempts to the end on the background loop, within the config's budgets or these; see ``run_batch``."""
        in_flight = IN_FLIGHT_PER_ROW * self.config.engine.max_batch
        arena = Arena(self.policy(temperature), self.call_tool, grade, budgets or self.config.budgets, in_flight)
        return self.loop.run(run_batch(attempts, arena, deadline_s=deadline_s, on_done=on_done))


@contextmanager
def open_session(
    config: Config, executors: Mapping[str, Executor] | None = None, tasks: TaskSource | None = None
) -> Iterator[Session]:
    """Start executors and task source; close them, and the engine, whatever happens. Raises UserError, RunError.

    ``executors`` puts ready ones in the place of a tool's own, by the tool's name; ``tasks`` is a source in the place
    of the config's own.
    """
    transformers_logging.disable_progress_bar()  # ours is the one bar
    tasks = tasks or open_source(config.tasks, config.seed)
    loop = BackgroundLoop()
    try:
        # Built on the loop: queues and semaphores belong to the loop they are made on.
        running = loop.run(_started(config, tasks, executors))
        session = Session(config, tasks, running, loop)
        try:
            yield session
        finally:
            if session.engine is not None:
                session.engine.close()
            loop.run(running.close())
    finally:
        loop.close()


async def _started(config: Config, tasks: TaskSource, given: Mapping[str, Executor] | None) -> Executors:
    settings = executor_settings(config)
    web = config.executors.web
    own = "web" in config.tools and web.backend == "corpus" and web.corpus is None
    documents = tasks.documents() if own else None
    executors = Executors(settings, documents=documents, executors=given)
    await executors.start()
    return executors


def executor_settings(config: Config) -> ExecutorSettings:
    """The executors' own settings, from the run's config."""
    code = config.executors.code
    limits = Limits(
        wall_s=code.timeout_s,
        cpu_s=max(1, round(code.timeout_s)),
        memory_mb=code.memory_mb,
        output_bytes=code.output_kb * 1024,
    )
    # The code executor also runs unit tests for graders, so it is there even where the policy may not call it.
    tools = tuple(dict.fromkeys((*config.tools, "code")))
    return ExecutorSettings(
        tools=tools,
        lanes=config.executors.lanes,
        # A run may take all of its tool's own time before it counts as stuck.
        deadline_s=max(getattr(config.executors, tool).timeout_s for tool in tools) + STUCK_AFTER_S,
        web=config.executors.web,
        code=CodeSettings(sandbox=code.sandbox, workers=code.workers, limits=limits),
    )
