"""What a run holds while it runs: the model and its engine, the tasks, the executors, and the loop they live on.

Invariant: everything that ``open_session`` starts is closed on every way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers.utils import logging as transformers_logging

from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.budgets import Budgets
from callwright.envs.executors.brokers import open_broker
from callwright.envs.executors.executor import Executor
from callwright.envs.executors.registry import known_tools
from callwright.envs.executors.service import Executors
from callwright.envs.policy import Policy
from callwright.envs.rewards import CallTool, grade
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.source import TaskSource, open_source
from callwright.envs.tasks.task import Task
from callwright.serving.background_loop import BackgroundLoop
from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Sampling
from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded
from callwright.serving.protocol import Tool
from callwright.serving.queues.faults import FaultyBroker
from callwright.training.config import Config
from callwright.training.engines import ServedEngine, configured_engine, local_engine
from callwright.training.executor_settings import executor_settings, searches_tasks, tools_of
from callwright.training.in_flight import in_flight


@dataclass(slots=True)
class Session:
    """One run's parts. Training and evaluation make their rollouts by ``run``, or in an ``arena``."""

    config: Config
    tasks: TaskSource
    executors: Executors
    loop: BackgroundLoop
    engine: ServedEngine | None = None
    codec: Codec | None = None

    @property
    def reward_queue(self) -> FaultyBroker | None:
        """The broker, where the config puts faults into its reward queue."""
        broker = self.executors.broker
        return broker if isinstance(broker, FaultyBroker) else None

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in known_tools() if tool.name in self.config.tools)

    def adopt(self, loaded: Loaded, model: Any = None) -> TransformersEngine:
        """Serve this model, here, from now on (``model``: the same weights under a trainer's wrapper)."""
        engine = local_engine(self.config, loaded, model)
        self.serve(engine, loaded.codec)
        return engine

    def adopt_configured(self) -> str:
        """Serve what ``model.path`` names and return its name. Raises UserError, RunError."""
        configured = configured_engine(self.config)
        self.serve(configured.engine, configured.codec)
        return configured.name

    def serve(self, engine: ServedEngine, codec: Codec) -> None:
        """Sample from this engine from now on; the one before it is closed."""
        if self.engine is not None:
            self.engine.close()
        self.engine, self.codec = engine, codec

    def policy(self, temperature: float, other: RemoteEngine | None = None) -> Policy:
        """The served model, or another engine's, as a policy with this config's dialect, tools, prompt and decoding.
        Raises UserError."""
        engine, codec = (self.engine, self.codec) if other is None else (other, other.codec)
        if engine is None or codec is None:
            raise RuntimeError("no model is being served yet")
        return Policy(
            engine,
            codec,
            self.tools,
            self.config.dialect,
            Sampling(temperature),
            self.config.system_prompt == "full",
            self.config.decoding == "grammar",
        )

    def episode(self) -> AbstractContextManager[CallTool]:
        """One rollout's calls through the broker, each with its tool's own deadline."""
        timeouts = {name: self.config.executors.of(name).timeout_s for name in self.config.tools}
        # The sandbox ends a program at its own time limit; ours must not come first.
        return self.executors.episode(lambda tool: timeouts.get(tool, 10.0) + self.config.executors.queue_s)

    def play(self, task: Task, *, sample: int = 0, engine: RemoteEngine | None = None) -> Rollout:
        """One greedy rollout, by the served model or by another engine's, for a framework that asks for one at a time
        (envs/adapters). May be called from several threads at once."""
        attempt = Attempt(task, sample, f"{self.config.seed}|played")
        arena = self._arena(self.policy(0.0, engine), self.config.budgets)
        return self.loop.run(run_batch([attempt], arena, deadline_s=self.config.grpo.deadline_s))[0]

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
        arena = self.arena(temperature, budgets)
        return self.loop.run(run_batch(attempts, arena, deadline_s=deadline_s, on_done=on_done))

    def arena(self, temperature: float, budgets: Budgets | None = None) -> Arena:
        """What rollouts of the served model share, within the config's budgets or these."""
        return self._arena(self.policy(temperature), budgets or self.config.budgets)

    def _arena(self, policy: Policy, budgets: Budgets) -> Arena:
        paid = partial(grade, function=self.config.reward.function())
        return Arena(policy, self.episode, paid, budgets, in_flight(self.config))


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
    settings, faults = executor_settings(config, tools_of(config)), config.grpo.faults
    own = "web" in config.tools and "web" not in settings.external and searches_tasks(config)
    broker = None if faults is None else FaultyBroker(open_broker(settings), faults, config.seed)
    executors = Executors(settings, documents=tasks.documents() if own else None, executors=given, broker=broker)
    await executors.start()
    return executors
