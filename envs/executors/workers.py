"""The executors and workers that run in this process: one of each a tool.

Invariants: start is all or nothing; close ends every task and process that start began, also after a failure; a worker
that ends by itself is a fault that ``health`` shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.executor import Executor
from callwright.envs.executors.journal import Journal
from callwright.envs.executors.registry import TOOLS
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.executors.tool_kind import Documents, ToolSettings
from callwright.serving.protocol.values import Tool
from callwright.serving.queues.broker import Broker

log = logging.getLogger(__name__)

CLOSE_S = 10.0  # an executor that takes longer to close is left behind, with a warning


@dataclass(frozen=True, slots=True)
class ExecutorHealth:
    """One executor's worker, as it stands."""

    tool: str
    executor: str
    alive: bool
    in_flight: int
    counts: Mapping[str, int]
    fault: str = ""


class Workers:
    """The workers of ``tools`` on ``broker``. ``executors`` replaces a tool's own back end by a ready one."""

    def __init__(
        self,
        broker: Broker,
        settings: ExecutorSettings,
        tools: Sequence[Tool],
        *,
        documents: Documents | None = None,
        executors: Mapping[str, Executor] | None = None,
        journal: Journal | None = None,
    ) -> None:
        given = executors or {}
        self._journal = journal
        own = {tool.name: _settings_of(tool.name, settings) for tool in tools}
        self._executors = {
            name: given[name] if name in given else TOOLS[name].executor(section, documents)
            for name, section in own.items()
        }
        self.workers = {
            tool.name: CommandWorker(
                broker,
                self._executors[tool.name],
                tool,
                concurrency=own[tool.name].workers,
                lease_s=settings.lease_s,
                deadline_s=settings.deadline_s,
                journal=journal,
            )
            for tool in tools
        }
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Start every executor, then its worker. Raises ExecutorUnavailable with one line."""
        try:
            for executor in self._executors.values():
                await executor.start()
        except BaseException:
            await self.close()
            raise
        for name, worker in self.workers.items():
            self._tasks[name] = asyncio.get_running_loop().create_task(worker.run(), name=f"worker of {worker.queue}")

    def health(self) -> list[ExecutorHealth]:
        """One entry a tool."""
        return [self._health_of(name, worker) for name, worker in self.workers.items()]

    def _health_of(self, name: str, worker: CommandWorker) -> ExecutorHealth:
        task = self._tasks.get(name)
        fault = ""
        if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
            fault = f"the worker of {name} stopped: {task.exception()!r}"
        alive = task is not None and not task.done()
        counts = {str(status): count for status, count in worker.counts.statuses.items()}
        return ExecutorHealth(name, worker.executor.name, alive, worker.in_flight, counts, fault)

    def drain(self) -> None:
        """Take no more commands; what is in hand is finished, which ``ended`` waits for."""
        for worker in self.workers.values():
            worker.drain()

    async def ended(self) -> None:
        """Until every worker has ended: drained, or because the broker was closed. Raises what one of them raised."""
        await asyncio.gather(*self._tasks.values())

    async def close(self) -> None:
        """Stop the workers, whose unfinished commands go back to their queues, then the executors. Safe to call
        twice."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in stuck:
                log.warning("the %s did not stop within %g s", task.get_name(), CLOSE_S)
        for executor in self._executors.values():
            try:
                async with asyncio.timeout(CLOSE_S):
                    await executor.close()
            except Exception as error:  # close everything, whatever one of them does
                log.warning("executor %s did not close: %r", executor.name, error)
        if self._journal is not None:
            await self._journal.close()


def _settings_of(tool: str, settings: ExecutorSettings) -> ToolSettings:
    return settings.per_tool[tool] if tool in settings.per_tool else TOOLS[tool].settings()
