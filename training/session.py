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
from callwright.envs.executors.registry import TOOLS, known_tools
from callwright.envs.executors.service import Executors
from callwright.envs.rewards import CallTool, grade
from callwright.envs.rollout import Policy, Rollout
from callwright.envs.tasks.source import TaskSource, open_source
from callwright.envs.tasks.task import Task
from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Sampling, require_exact
from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded, load
from callwright.serving.protocol import Tool
from callwright.serving.queues.faults import FaultyBroker
from callwright.training.background_loop import BackgroundLoop
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import Config
from callwright.training.executor_settings import executor_settings, searches_tasks, tools_of
from callwright.training.remote import remote_engine

IN_FLIGHT_PER_ROW = 4  # rollouts at once per row of the engine: while some wait for tools, others decode


@dataclass(slots=True)
class Session:
    """One run's parts. ``run`` is the only way rollouts are made in training and evaluation."""

    config: Config
    tasks: TaskSource
    executors: Executors
    loop: BackgroundLoop
    engine: TransformersEngine | RemoteEngine | None = None
    codec: Codec | None = None

    @property
    def reward_queue(self) -> FaultyBroker | None:
        """The broker, where the config puts faults into its reward queue."""
        broker = self.executors.broker
        return broker if isinstance(broker, FaultyBroker) else None

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in known_tools() if tool.name in self.config.tools)

    def adopt(self, loaded: Loaded, model: Any = None) -> None:
        """Serve this model from now on (``model``: the same weights under a trainer's wrapper)."""
        engine = self.config.engine
        serving = TransformersEngine(
            loaded.model if model is None else model,
            rows=engine.max_batch,
            context=engine.max_context,
            barrier=self.config.deterministic,
        )
        self._serve(serving, loaded.codec)

    def adopt_configured(self) -> str:
        """Serve what ``model.path`` names, a checkpoint or a vendor's model, and return its name. Raises UserError."""
        path, engine = self.config.model.path, self.config.engine
        if engine.kind == "remote":
            remote = remote_engine(self.config)
            self._serve(remote, remote.codec)
            return f"{path} at {engine.remote.url}"
        path = resolve_checkpoint(path)
        self.adopt(load(path, device=engine.device, dtype=engine.dtype))
        return path

    def _serve(self, engine: TransformersEngine | RemoteEngine, codec: Codec) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine, self.codec = engine, codec

    @property
    def exact_engine(self) -> TransformersEngine:
        """The engine, for policy-gradient training. Raises UserError where it knows its model by text alone."""
        require_exact(type(self.engine))
        assert isinstance(self.engine, TransformersEngine)
        return self.engine

    def policy(self, temperature: float, other: RemoteEngine | None = None) -> Policy:
        """The served model, or another engine's, as a policy with this config's dialect, tools and prompt."""
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
        arena = self._arena(self.policy(temperature), budgets or self.config.budgets)
        return self.loop.run(run_batch(attempts, arena, deadline_s=deadline_s, on_done=on_done))

    def _arena(self, policy: Policy, budgets: Budgets) -> Arena:
        paid = partial(grade, function=self.config.reward.function())
        return Arena(policy, self.episode, paid, budgets, in_flight(self.config))


def at_once(config: Config, most: int) -> int:
    """How many rollouts run at once: ``most``, or fewer where each keeps a lane of a stateful tool to its end."""
    stateful = any(TOOLS[name].tool.stateful for name in config.tools)
    return min(most, config.executors.lanes) if stateful else most


def in_flight(config: Config) -> int:
    """How many rollouts of the engine run at once."""
    return at_once(config, IN_FLIGHT_PER_ROW * config.engine.max_batch)


def waves(config: Config, attempts: int) -> int:
    """How many waves so many attempts take: those of one wave run at once."""
    return -(-attempts // in_flight(config))


def engine_class(config: Config) -> type:
    """The class of the engine that the config asks for."""
    return RemoteEngine if config.engine.kind == "remote" else TransformersEngine


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
