"""Who works on a queue: each worker holds the lease of a message that says so, and renewing it is its heartbeat.

Invariant: a presence message that nobody holds is a dead worker's. So no clocks are compared, and what every broker
has anyway (leases that end by themselves) tells the living from the dead.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
import uuid

from callwright.serving.queues.broker import Broker, BrokerClosed, BrokerError, Lease, LeaseLost

log = logging.getLogger(__name__)

BEAT_S = 5.0
LEASE_S = 20.0  # a killed worker counts as present for so long
_AT_ONCE_S = 0.05
_LOOK_S = 0.5


def presence_queue(tool: str) -> str:
    """The name of the queue that holds the presence of a tool's workers."""
    return f"presencequeue-{tool}"


class Presence:
    """One worker's. ``beat`` is the monotonic time of the last sign that the broker took."""

    def __init__(self, broker: Broker, tool: str, *, beat_s: float = BEAT_S, lease_s: float = LEASE_S) -> None:
        self.worker = f"{tool}-{uuid.uuid4().hex[:8]}"
        self.beat = time.monotonic()
        self._broker = broker
        self._queue = presence_queue(tool)
        self._beat_s = beat_s
        self._lease_s = lease_s
        self._lease: Lease | None = None
        self._sent = False  # a sign that may be there still, held or not

    async def run(self) -> None:
        """Beat until cancelled or the broker is closed; a broker that fails is asked again at the next beat."""
        while True:
            try:
                await self.announce()
                self.beat = time.monotonic()
            except BrokerClosed:
                return
            except (BrokerError, OSError) as error:
                log.warning("worker %s: no heartbeat: %s", self.worker, error)
            await asyncio.sleep(self._beat_s)

    async def announce(self) -> None:
        """One beat. Raises BrokerError."""
        if self._lease is not None:
            try:
                await self._broker.renew(self._lease, self._lease_s)
                return
            except LeaseLost:  # this process stood still for longer than that, and its sign is another's to remove
                self._lease, self._sent = None, False
        if self._sent:  # the last beat was too short to take it: a second sign would outlive the first
            self._lease = await self._receive(self._beat_s)
            if self._lease is not None:
                return
        body = {"worker": self.worker, "host": socket.gethostname(), "pid": os.getpid()}
        await self._broker.send(self._queue, json.dumps(body).encode(), message_id=self.worker, lane=self.worker)
        self._sent = True
        self._lease = await self._receive(self._beat_s)

    async def _receive(self, timeout_s: float) -> Lease | None:
        return await self._broker.receive(self._queue, lane=self.worker, timeout_s=timeout_s, lease_s=self._lease_s)

    async def leave(self) -> None:
        """Take the sign down."""
        lease, sent = self._lease, self._sent
        self._lease, self._sent = None, False
        try:
            if lease is None and sent:
                lease = await self._receive(_AT_ONCE_S)
            if lease is not None:
                await self._broker.complete(lease)
        except (BrokerError, OSError) as error:
            log.info("worker %s: its presence ends by itself within %g s: %s", self.worker, self._lease_s, error)


async def present_workers(broker: Broker, tool: str) -> int:
    """How many workers of a tool live. Removes what dead ones left. Raises BrokerError."""
    queue = presence_queue(tool)
    while (dead := await broker.receive(queue, timeout_s=_AT_ONCE_S)) is not None:
        await broker.complete(dead)
    return (await broker.stats(queue)).leased or 0


async def await_worker(broker: Broker, tool: str, *, timeout_s: float) -> bool:
    """Whether a worker of the tool is there, or comes within ``timeout_s``. Raises BrokerError."""
    closing = time.monotonic() + timeout_s
    while not await present_workers(broker, tool):
        if time.monotonic() >= closing:
            return False
        await asyncio.sleep(_LOOK_S)
    return True
