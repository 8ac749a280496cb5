"""Broker, executors, workers and dispatcher as one object with a start and a close.

    async with Executors(settings, documents=documents) as executors:
        reply = await executors.dispatcher.call(call, timeout_s=10)

Invariants: start is all or nothing; close ends every task and process that start began, also after a failure; a worker
that ends by itself is a fault that ``health`` shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from callwright.envs.executors.azure import UnconfiguredAzure
from callwright.envs.executors.brokers import open_broker
from callwright.envs.executors.code import CodeExecutor
from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.corpus import Corpus, Document
from callwright.envs.executors.executor import Executor
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.executors.web import CorpusExecutor, search_executor
from callwright.serving.errors import UserError
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.values import Tool, ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, Broker
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher, Reply

log = logging.getLogger(__name__)

CLOSE_S = 10.0  # an executor that takes longer to close is left behind, with a warning

Documents = Iterable[Document | Sequence[str]]


@dataclass(frozen=True, slots=True)
class ExecutorHealth:
    """One executor's worker, as it stands."""

    tool: str
    executor: str
    alive: bool
    in_flight: int
    counts: Mapping[str, int]
    fault: str = ""


class Executors:
    """The tools of ``settings``, running. ``executors`` replaces a tool's own back end by a ready one."""

    def __init__(
        self,
        settings: ExecutorSettings | None = None,
        *,
        documents: Documents | None = None,
        tools: Sequence[Tool] = DEFAULT_TOOLS,
        executors: Mapping[str, Executor] | None = None,
        broker: Broker | None = None,
    ) -> None:
        self.settings = settings or ExecutorSettings()
        known = {tool.name: tool for tool in tools}
        unknown = [name for name in self.settings.tools if name not in known]
        if unknown:
            raise UserError(f"there is no tool {unknown[0]}; known: {', '.join(known)}")
        self.tools = tuple(known[name] for name in self.settings.tools)
        self.broker = broker or open_broker(self.settings)
        given = executors or {}
        self._executors = {
            tool.name: given[tool.name] if tool.name in given else self._make(tool.name, documents)
            for tool in self.tools
        }
        self._workers = [
            CommandWorker(
                self.broker,
                self._executors[tool.name],
                tool,
                concurrency=self.settings.concurrency(tool.name),
                deadline_s=self.settings.deadline_s,
            )
            for tool in self.tools
        ]
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.dispatcher = Dispatcher(self.broker, self.tools, lanes=self.settings.lanes)

    def _make(self, tool: str, documents: Documents | None) -> Executor:
        if tool == "web":
            web = self.settings.web
            return CorpusExecutor(self._corpus(documents)) if web.backend == "corpus" else search_executor(web)
        if tool == "code":
            return CodeExecutor(self.settings.code)
        if tool == "azure":
            return UnconfiguredAzure()
        raise UserError(f"the tool {tool} has no executor")

    def _corpus(self, documents: Documents | None) -> Corpus:
        path = self.settings.web.corpus
        if documents is not None:
            return Corpus.build(documents, path)
        if path is None:
            raise UserError("the tool web needs documents: set web.corpus to a collection's file")
        try:
            return Corpus.open(path)
        except FileNotFoundError as error:
            raise UserError(str(error)) from error

    async def start(self) -> None:
        """Reach the broker, start every executor, then its worker. Raises BrokerError, ExecutorUnavailable."""
        try:
            await self.broker.start(*(worker.queue for worker in self._workers), REWARD_QUEUE)
            for executor in self._executors.values():
                await executor.start()
        except BaseException:
            await self.close()
            raise
        for worker in self._workers:
            name = worker.tool.name
            self._tasks[name] = asyncio.get_running_loop().create_task(worker.run(), name=f"worker of {worker.queue}")

    async def call(self, call: ToolCall, *, timeout_s: float | None = None) -> Reply:
        """``dispatcher.call`` with the settings' time-out."""
        return await self.dispatcher.call(call, timeout_s=self.settings.timeout_s if timeout_s is None else timeout_s)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Per tool, how many calls ended in each status."""
        return {tool: {str(s): counts[s] for s in CallStatus} for tool, counts in self.dispatcher.counts.items()}

    def health(self) -> list[ExecutorHealth]:
        """One entry a tool."""
        return [self._health_of(worker) for worker in self._workers]

    def _health_of(self, worker: CommandWorker) -> ExecutorHealth:
        name = worker.tool.name
        task = self._tasks.get(name)
        fault = ""
        if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
            fault = f"the worker of {name} stopped: {task.exception()!r}"
        alive = task is not None and not task.done()
        return ExecutorHealth(name, worker.executor.name, alive, worker.in_flight, self.counts[name], fault)

    async def close(self) -> None:
        """Stop the workers, then the executors, then the broker. Safe to call twice."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in stuck:
                log.warning("the %s did not stop within %g s", task.get_name(), CLOSE_S)
        await self.dispatcher.close()
        for executor in self._executors.values():
            try:
                async with asyncio.timeout(CLOSE_S):
                    await executor.close()
            except Exception as error:  # close everything, whatever one of them does
                log.warning("executor %s did not close: %r", executor.name, error)
        await self.broker.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
