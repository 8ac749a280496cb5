"""Broker, workers and dispatcher as one object with a start and a close.

    async with Executors(settings, documents=documents) as executors:
        with executors.episode() as call:  # one rollout's
            reply = await call(ToolCall("web", {"q": "capital of Norway", "k": 3}))

Invariants: start is all or nothing; close ends every task and process that start began, also after a failure. The tools
in ``settings.external`` have their workers in other processes: here they are only called, and a start without any such
worker, or a call that none of them took in time, says so and how to start one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from callwright.envs.executors.brokers import open_broker
from callwright.envs.executors.executor import Executor, ExecutorUnavailable
from callwright.envs.executors.journal import Journal
from callwright.envs.executors.presence import await_worker, presence_queue, present_workers
from callwright.envs.executors.registry import TOOLS
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.executors.tool_kind import Documents
from callwright.envs.executors.workers import ExecutorHealth, Workers
from callwright.serving.errors import UserError
from callwright.serving.progress import log
from callwright.serving.protocol.values import Tool, ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, Broker, command_queue
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher, Reply


class Executors:
    """The tools of ``settings``, running. ``executors`` replaces a tool's own back end by a ready one."""

    def __init__(
        self,
        settings: ExecutorSettings | None = None,
        *,
        documents: Documents | None = None,
        executors: Mapping[str, Executor] | None = None,
        broker: Broker | None = None,
    ) -> None:
        self.settings = settings or ExecutorSettings()
        for name in self.settings.tools:
            if name not in TOOLS:
                raise UserError(TOOLS.missing(name))
        self.tools = tuple(TOOLS[name].tool for name in self.settings.tools)
        self.broker = broker or open_broker(self.settings)
        local = [tool for tool in self.tools if tool.name not in self.settings.external]
        self._workers = Workers(
            self.broker, self.settings, local, documents=documents, executors=executors, journal=self._journal(local)
        )
        self.dispatcher = Dispatcher(self.broker, self.tools, lanes=self.settings.lanes, explain=self._why_unanswered)

    def _journal(self, local: Sequence[Tool]) -> Journal | None:
        """A memory broker ends with this process; the others may bring a command a second time."""
        return None if self.settings.broker == "memory" or not local else Journal(self.settings.journal)

    async def start(self) -> None:
        """Reach the broker, start every executor and worker that runs here, wait for the others.

        Raises BrokerError, ExecutorUnavailable.
        """
        try:
            commands = [command_queue(tool.name) for tool in self.tools]
            signs = [presence_queue(tool) for tool in self.settings.external]
            await self.broker.start(*commands, *signs, REWARD_QUEUE)
            await self._workers.start()
            for tool in self.settings.external:
                await self._meet(tool)
        except BaseException:
            await self.close()
            raise

    async def _meet(self, tool: str) -> None:
        wait_s = self.settings.worker_wait_s
        if not await present_workers(self.broker, tool):
            log(f"waiting {wait_s:g} s for a worker: {_no_worker(tool)}")
            if not await await_worker(self.broker, tool, timeout_s=wait_s):
                raise ExecutorUnavailable(f"{_no_worker(tool)} (waited {wait_s:g} s)")

    async def _why_unanswered(self, tool: str) -> str:
        if tool in self.settings.external:
            return "" if await present_workers(self.broker, tool) else _no_worker(tool)
        await self.broker.stats(command_queue(tool))  # a broker that is gone says so
        return ""

    @contextlib.contextmanager
    def episode(
        self, timeout_s: Callable[[str], float] | None = None
    ) -> Iterator[Callable[[ToolCall], Awaitable[Reply]]]:
        """One rollout's calls, with the settings' time-out or with that of the tool's name."""
        with self.dispatcher.episode() as episode:

            async def call(call: ToolCall) -> Reply:
                seconds = self.settings.timeout_s if timeout_s is None else timeout_s(call.name)
                return await episode.call(call, timeout_s=seconds)

            yield call

    async def call(self, call: ToolCall) -> Reply:
        """An episode of one call."""
        with self.episode() as call_tool:
            return await call_tool(call)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Per tool, how many calls ended in each status."""
        return {tool: {str(s): counts[s] for s in CallStatus} for tool, counts in self.dispatcher.counts.items()}

    def health(self) -> list[ExecutorHealth]:
        """One entry a tool whose worker runs here."""
        return self._workers.health()

    async def close(self) -> None:
        """Stop the workers and executors, then the dispatcher, then the broker. Safe to call twice."""
        await self._workers.close()
        await self.dispatcher.close()
        await self.broker.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _no_worker(tool: str) -> str:
    return (
        f"no worker takes from the queue {command_queue(tool)}; start one with: callwright worker {tool} CONFIG, "
        "with the config and values of this run"
    )
