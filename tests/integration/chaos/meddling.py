"""Commands that are late, lost, doubled and overtaken, as the reward queue's faults do to replies; and both at once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from callwright.envs.executors.settings import ExecutorSettings
from callwright.serving.queues.broker import Broker, BrokerClosed
from callwright.serving.queues.lanes import call_id_of
from callwright.training import session


@dataclass(frozen=True, slots=True)
class Meddled:
    """Shares of commands: ``drop`` never arrive, ``duplicate`` arrive twice. Each is held back for up to ``delay_s``
    seconds, so that they overtake each other. What befalls a command depends on its call alone."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.0

    def arm(self) -> None:
        open_broker = session.open_broker

        def meddled(settings: ExecutorSettings) -> Broker:
            return _Meddler(open_broker(settings), self)

        session.open_broker = meddled


class _Meddler:
    """Everything is the inner broker's but sending to a command queue."""

    def __init__(self, inner: Broker, shares: Meddled) -> None:
        self._inner = inner
        self._shares = shares
        self._late: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        if not queue.startswith("commandqueue-"):
            await self._inner.send(queue, body, message_id=message_id, lane=lane)
            return
        rng = random.Random(f"command|{call_id_of(message_id)}")
        dropped, doubled, late = rng.random(), rng.random(), rng.random()
        if dropped < self._shares.drop:
            return
        sending = self._send(queue, body, message_id, lane, late * self._shares.delay_s)
        task = asyncio.create_task(sending)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        if doubled < self._shares.duplicate:
            await self._inner.send(queue, body, message_id=message_id, lane=lane)

    async def _send(self, queue: str, body: bytes, message_id: str, lane: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        try:
            await self._inner.send(queue, body, message_id=message_id, lane=lane)
        except BrokerClosed:
            return  # the run is over
