"""The executors' own settings, from a run's config. Imports without torch: a worker process needs nothing else of
training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from callwright.envs.executors.settings import ExecutorSettings
from callwright.training.config import Config

STUCK_AFTER_S = 15.0  # beyond its tool's own time limit, an executor that has not answered is stuck


def tools_of(config: Config) -> tuple[str, ...]:
    """The tools that a run calls. The code executor also runs unit tests for graders, so it is one of them even where
    the policy may not call it."""
    return tuple(dict.fromkeys((*config.tools, "code")))


def searches_tasks(config: Config) -> bool:
    """Whether the web tool searches the tasks' own documents, and not a collection's file or a service."""
    web = config.executors.web
    return web.backend == "corpus" and web.corpus is None


def executor_settings(config: Config, tools: Sequence[str]) -> ExecutorSettings:
    """The settings of the executors of ``tools``."""
    return ExecutorSettings(
        tools=tuple(tools),
        broker=config.executors.broker_of_run,
        queues=Path(config.executors.queues),
        servicebus_env=config.executors.servicebus_env,
        servicebus_prefix=config.executors.servicebus_prefix,
        external=tuple(tool for tool in tools if tool in config.executors.external),
        worker_wait_s=config.executors.queue_s,
        lease_s=config.executors.lease_s,
        journal=Path(config.executors.journal),
        health_port=config.executors.health_port,
        lanes=config.executors.lanes,
        # A run may take all of its tool's own time before it counts as stuck.
        deadline_s=max(config.executors.of(tool).timeout_s for tool in tools) + STUCK_AFTER_S,
        per_tool={tool: config.executors.of(tool) for tool in tools},
    )
