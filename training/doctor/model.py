"""The model of a config: loaded, asked once, and put through one rollout of an evaluation.

Invariant: nothing is trained and nothing is written. The model is loaded once, and what it needs besides (tasks) is
made before.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers.utils import logging as transformers_logging

from callwright.envs.batch import Attempt
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.tasks.source import TaskSource
from callwright.envs.trajectory import Outcome
from callwright.serving.background_loop import BackgroundLoop
from callwright.serving.errors import RunError
from callwright.serving.models import Loaded
from callwright.serving.protocol import Parser
from callwright.serving.turn import Turn, turn
from callwright.training.config import Config
from callwright.training.doctor.check import Status, Verdict
from callwright.training.doctor.executors import private
from callwright.training.executor_settings import tools_of
from callwright.training.served import ServedPolicy
from callwright.training.session import Session, open_session
from callwright.training.warm_start import beginning

TURN_TOKENS = 64


@dataclass(slots=True)
class ModelChecks:
    """The checks of one config's model, in this order: ``load``, ``generate``, ``sync``, ``evaluate``."""

    config: Config
    tasks: TaskSource
    loaded: Loaded | None = field(default=None, init=False)

    def load(self) -> Verdict:
        """What a run would begin with. Raises UserError."""
        if self.config.engine.kind == "remote":
            return Verdict(Status.OK, f"{self.config.model.path} at {self.config.engine.remote.url}, by its text alone")
        transformers_logging.disable_progress_bar()
        loop = BackgroundLoop()
        try:
            self.loaded = beginning(self._session(loop))
        finally:
            loop.close()
        parameters, bytes_ = self.loaded.model.num_parameters(), self.loaded.model.get_memory_footprint()
        source = self.config.warm_start.checkpoint or self.config.model.path
        device = self.loaded.model.device
        return Verdict(
            Status.OK, f"{source}: {parameters / 1e6:.1f}M parameters, {bytes_ / 2**20:.1f} MiB of weights on {device}"
        )

    def generate(self) -> Verdict:
        """One greedy turn. Raises EngineError, UserError."""
        loop = BackgroundLoop()
        session = self._session(loop)
        try:
            self._serve(session)
            taken = loop.run(_turn(session))
        finally:
            if session.engine is not None:
                session.engine.close()
            loop.close()
        return Verdict(Status.OK, f"{len(taken.completion.ids)} tokens, ended by {taken.completion.reason}")

    def sync(self) -> Verdict:
        """Whether weights reach the engine, as a run's first version would. Raises RunError, UserError."""
        if self.config.engine.kind == "remote" or self.loaded is None:
            return Verdict(Status.SKIPPED, "a vendor's model is not trained")
        loop = BackgroundLoop()
        session = self._session(loop)
        try:
            with TemporaryDirectory() as folder, closing(ServedPolicy(session, Path(folder))) as served:
                served.start(self.loaded)
                served.train(self.loaded, self.loaded.model)
                receipt = served.renew(1, self.loaded.model)
        finally:
            if session.engine is not None:
                session.engine.close()
            loop.close()
        if not receipt.checksum:
            return Verdict(Status.OK, "shared: the engine samples in the trainer's own weights, nothing to sync")
        return Verdict(Status.OK, f"{receipt.bytes / 2**20:.1f} MiB sent and proved (checksum {receipt.checksum})")

    def evaluate(self) -> Verdict:
        """One held-out task through the one rollout function and its grader. Raises RunError, UserError."""
        config = self.config
        with open_session(private(config, tools_of(config)), tasks=self.tasks) as session:
            self._serve(session)
            task = self.tasks.evaluation("new_seeds", 1)[0]
            (row,) = session.run(
                [Attempt(task, 0, "doctor")], temperature=0.0, deadline_s=config.budgets.wall_s + TURN_TOKENS
            )
        if not row.outcome.in_baseline:
            raise RunError(f"{task.key}: {row.outcome}: {row.trajectory.cause}")
        why = f" ({row.trajectory.cause})" if row.outcome is Outcome.POLICY_FAULT else ""
        return Verdict(
            Status.OK, f"{task.key}: {row.outcome}{why}, {len(row.calls)} calls, reward {row.total_reward:g}"
        )

    def _session(self, loop: BackgroundLoop) -> Session:
        """A session without tools: a model is loaded and asked whatever the executors do."""
        return Session(self.config, self.tasks, Executors(ExecutorSettings(tools=())), loop)

    def _serve(self, session: Session) -> None:
        if self.loaded is None:
            session.adopt_configured()
        else:
            session.adopt(self.loaded)


async def _turn(session: Session) -> Turn:
    policy, config = session.policy(0.0), session.config
    task = session.tasks.evaluation("new_seeds", 1)[0]
    return await turn(
        policy.engine,
        policy.codec,
        Parser(dialect=policy.dialect, tools=list(policy.tools)),
        policy.prompt_ids(task.question),
        max_new_tokens=min(config.budgets.turn_tokens, TURN_TOKENS),
        sampling=policy.sampling,
        key=0,
        session="doctor",
    )
