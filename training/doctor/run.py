"""The verb doctor: which checks a config gets, in which order, and by when each has to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from callwright.envs.executors.tool_kind import Documents
from callwright.envs.tasks.source import TaskSource, open_source
from callwright.serving.errors import UserError
from callwright.training.config import Config
from callwright.training.doctor.check import Check, Finding, Status, Verdict, examine
from callwright.training.doctor.executors import check_broker, check_call, check_sandbox
from callwright.training.doctor.machine import check_device, check_versions
from callwright.training.executor_settings import searches_tasks, tools_of

if TYPE_CHECKING:  # it loads torch
    from callwright.training.doctor.model import ModelChecks

START_S = 30.0  # what a part may take to start, beyond the time that its work has anyway
LOAD_S = 600.0  # a model that is fetched first


def doctor(config: Config) -> Iterator[Finding]:
    """Try each part of the config's set-up once; the findings come as they are made."""
    return examine(checks_of(config))


def checks_of(config: Config) -> list[Check]:
    """The checks, in the order in which they build on one another."""
    return _Parts(config).checks()


@dataclass(slots=True)
class _Parts:
    """What one check made and a later one uses."""

    config: Config
    tasks: TaskSource | None = field(default=None, init=False)
    model: ModelChecks | None = field(default=None, init=False)

    def checks(self) -> list[Check]:
        config = self.config
        rollout_s = config.budgets.wall_s + START_S
        return [
            Check("versions", check_versions, START_S, "pip install --force-reinstall callwright"),
            Check("device", partial(check_device, config), 2 * START_S, "set engine.device=cpu, or mend the driver"),
            Check("tasks", self._open_tasks, 2 * START_S, "see the section tasks of the config"),
            Check("sandbox", partial(check_sandbox, config), 2 * START_S, "see docs/sandbox.md"),
            Check("broker", partial(check_broker, config), START_S, "see executors.broker and docs/brokers.md"),
            *(self._call(tool) for tool in tools_of(config)),
            Check("model", self._load, LOAD_S, "see model.path and warm_start.checkpoint", needs=("tasks",)),
            Check("generation", self._generate, rollout_s, "see the section engine", needs=("model",)),
            Check("weight sync", self._sync, START_S, "see the section engine", needs=("model",)),
            Check("evaluation", self._evaluate, rollout_s, "mend what failed above first", needs=("generation",)),
        ]

    def _call(self, tool: str) -> Check:
        deadline_s = self.config.executors.of(tool).timeout_s + START_S
        return Check(f"call {tool}", partial(self._check_call, tool), deadline_s, f"see executors.{tool}", ("tasks",))

    def _check_call(self, tool: str) -> Verdict:
        return check_call(self.config, tool, self._documents() if tool == "web" else None)

    def _open_tasks(self) -> Verdict:
        self.tasks = open_source(self.config.tasks, self.config.seed)
        held_out = self.tasks.evaluation("new_seeds", 1)
        if not held_out:
            raise UserError("tasks: there is no held-out row")
        return Verdict(Status.OK, f"one held-out row: {held_out[0].key}")

    def _documents(self) -> Documents | None:
        assert self.tasks is not None
        return self.tasks.documents() if searches_tasks(self.config) else None

    def _load(self) -> Verdict:
        from callwright.training.doctor.model import ModelChecks

        assert self.tasks is not None
        self.model = ModelChecks(self.config, self.tasks)
        return self.model.load()

    def _generate(self) -> Verdict:
        assert self.model is not None
        return self.model.generate()

    def _sync(self) -> Verdict:
        assert self.model is not None
        return self.model.sync()

    def _evaluate(self) -> Verdict:
        assert self.model is not None
        return self.model.evaluate()
