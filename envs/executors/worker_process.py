"""One tool's executors as a process of its own, as many of them as one likes on one queue; of a stateful tool one.

Invariants: told to stop (SIGTERM, SIGINT), it takes no more commands, answers those in hand and ends well; told twice,
it gives them back and ends at once. Its presence on the broker lasts as long as it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Mapping
from typing import Any

from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.executors.journal import Journal
from callwright.envs.executors.presence import LEASE_S, Presence, presence_queue, present_workers
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.executors.tool_kind import Documents
from callwright.envs.executors.worker_endpoint import WorkerEndpoint, WorkerMetrics
from callwright.envs.executors.workers import Workers
from callwright.serving.protocol.values import Tool
from callwright.serving.queues.broker import REWARD_QUEUE, Broker, command_queue

log = logging.getLogger(__name__)


class WorkerProcess:
    """The worker of ``tool`` on ``broker``, which it closes."""

    def __init__(
        self, tool: Tool, settings: ExecutorSettings, broker: Broker, documents: Documents | None = None
    ) -> None:
        self._tool = tool
        self._broker = broker
        self._presence = Presence(broker, tool.name)
        self._workers = Workers(broker, settings, (tool,), documents=documents, journal=Journal(settings.journal))
        self._worker = self._workers.workers[tool.name]
        self._health_port = settings.health_port
        self._stops = 0

    async def run(self) -> None:
        """Until told to stop. Raises RunError where the executor or the broker cannot be had.

        Raises KeyboardInterrupt when told twice.
        """
        running = asyncio.current_task()
        assert running is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, running)
        try:
            await self._serve()
        except asyncio.CancelledError:
            if self._stops < 2:
                raise
            raise KeyboardInterrupt from None

    async def _serve(self) -> None:
        name, queue = self._presence.worker, command_queue(self._tool.name)
        beating: asyncio.Task[None] | None = None
        try:
            with self._endpoint():
                await self._broker.start(queue, REWARD_QUEUE, presence_queue(self._tool.name))
                await self._alone()
                await self._workers.start()
                beating = asyncio.create_task(self._presence.run(), name=f"heartbeat of {name}")
                log.info("worker %s takes from %s with %s", name, queue, self._worker.executor.name)
                await self._workers.ended()
                log.info("worker %s has answered what it had in hand and ends", name)
        finally:
            if beating is not None:
                beating.cancel()
                await asyncio.wait([beating])
                await self._presence.leave()
            await self._workers.close()
            await self._broker.close()

    async def _alone(self) -> None:
        """Refuse to be a stateful tool's second worker: each would see a part of what an episode did."""
        if self._tool.stateful and await present_workers(self._broker, self._tool.name):
            raise ExecutorUnavailable(
                f"a worker serves {command_queue(self._tool.name)} already, and an episode's state lives in one: "
                f"stop it first (one that was killed counts for {LEASE_S:g} s)"
            )

    def _stop(self, running: asyncio.Task[None]) -> None:
        self._stops += 1
        if self._stops == 1:
            log.info("worker %s drains: %d calls in hand, no more are taken", self._presence.worker, self._in_hand)
            self._workers.drain()
        else:
            running.cancel()

    @property
    def _in_hand(self) -> int:
        return self._worker.in_flight

    def _endpoint(self) -> contextlib.AbstractContextManager[object]:
        if self._health_port is None:
            return contextlib.nullcontext()
        endpoint = WorkerEndpoint(self._health_port, self._health, WorkerMetrics(self._worker, self._beat_age_s))
        log.info("worker %s: %s/healthz and /metrics", self._presence.worker, endpoint.url)
        return endpoint

    def _beat_age_s(self) -> float:
        return time.monotonic() - self._presence.beat

    def _health(self) -> tuple[bool, Mapping[str, Any]]:
        """Well while the broker takes its heartbeats; a loop that stands still or a broker that fails lets them age."""
        age = self._beat_age_s()
        facts = {
            "worker": self._presence.worker,
            "state": "draining" if self._worker.draining else "running",
            "in_flight": self._in_hand,
            "heartbeat_age_s": round(age, 3),
        }
        return age < LEASE_S, facts
