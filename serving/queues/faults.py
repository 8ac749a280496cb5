"""A reward queue that misbehaves on purpose, around any broker: late, lost, doubled and overtaken records.

Invariants: what happens to a record depends on (seed, the id of the call it answers) alone, never on order or timing;
turning one dial leaves the draws of the others as they are; outside ``injecting`` every message passes untouched. Each
record sent inside it gives one ``Entry``: the reward queue's log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log as ln
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from callwright.serving.queues.broker import REWARD_QUEUE, Broker, BrokerError, Lease, Message, QueueStats
from callwright.serving.queues.lanes import call_id_of

log = logging.getLogger(__name__)

OVERTAKEN_S = 0.5  # a record that waits to be overtaken is sent after so long, where no other one comes
PARETO_SHAPE = 1.5  # of the heavy tail: a finite mean, no finite variance


class FaultSettings(BaseModel):
    """What goes wrong on the reward queue, in training batches only; the queue's log is in reward_queue/."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay: Literal["none", "constant", "exponential", "pareto"] = Field(
        default="none", description="How long a record is held back; `pareto` has a heavy tail."
    )
    delay_s: float = Field(default=0.0, ge=0, description="Mean of that delay, in seconds.")
    drop: float = Field(default=0.0, ge=0, le=1, description="Share of records that are lost.")
    duplicate: float = Field(default=0.0, ge=0, le=1, description="Share of records that come twice.")
    reorder: float = Field(default=0.0, ge=0, le=1, description="Share of records that the next one overtakes.")


@dataclass(frozen=True, slots=True)
class Fate:
    """What befalls one record. ``delay_s`` is in seconds."""

    dropped: bool = False
    duplicated: bool = False
    overtaken: bool = False
    delay_s: float = 0.0


def fate(settings: FaultSettings, seed: int, address: str) -> Fate:
    """The fate of the record that answers the call with the id ``address``."""
    rng = random.Random(f"{seed}|faults|{address}")
    dropped, duplicated, overtaken, late = (rng.random() for _ in range(4))
    return Fate(
        dropped < settings.drop,
        duplicated < settings.duplicate,
        overtaken < settings.reorder,
        _delay(settings, late),
    )


def _delay(settings: FaultSettings, u: float) -> float:
    """The delay at the quantile ``u`` of the distribution, in seconds."""
    mean = settings.delay_s
    if settings.delay == "constant":
        return mean
    if settings.delay == "exponential":
        return -mean * ln(1 - u)
    if settings.delay == "pareto":
        least = mean * (PARETO_SHAPE - 1) / PARETO_SHAPE
        return float(least / (1 - u) ** (1 / PARETO_SHAPE))
    return 0.0


@dataclass(slots=True)
class Entry:
    """One record in the log. Times are seconds since ``injecting`` began; ``settled`` is how its reader settled it
    (``paired``, ``duplicate`` where the call had its reply already, or the code of its dead letter; '' while nobody
    has), ``crossed`` that it answered another call."""

    message_id: str
    lane: str
    size: int
    sent_s: float
    fate: Fate
    settled: str = ""
    settled_s: float = 0.0
    crossed: bool = False


class FaultyBroker:
    """See ``Broker``. ``inner`` keeps its contract: only what this process sends to the reward queue is touched."""

    def __init__(self, inner: Broker, settings: FaultSettings, seed: int) -> None:
        self._inner = inner
        self._settings = settings
        self._seed = seed
        self._log: list[Entry] | None = None
        self._started = 0.0
        self._open: dict[tuple[str, str], list[Entry]] = {}  # (lane, message id) to its entries
        self._asked: dict[str, str] = {}  # lane to the id of its last command
        self._overtaken: list[asyncio.Event] = []
        self._late: set[asyncio.Task[None]] = set()

    @contextmanager
    def injecting(self) -> Iterator[list[Entry]]:
        """Interfere with records for as long as the block runs; their log fills the list it gives."""
        entries: list[Entry] = []
        self._started, self._log = time.monotonic(), entries
        try:
            yield entries
        finally:
            self._log = None
            self._open.clear()

    async def start(self, *queues: str) -> None:
        await self._inner.start(*queues)

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        if queue != REWARD_QUEUE:
            self._asked[lane] = message_id
        if queue != REWARD_QUEUE or self._log is None:
            await self._inner.send(queue, body, message_id=message_id, lane=lane)
            return
        drawn = fate(self._settings, self._seed, call_id_of(message_id))
        message = Message(body, message_id, lane)
        copies = 0 if drawn.dropped else 2 if drawn.duplicated else 1
        entry = Entry(message_id, lane, len(body), self._now(), drawn)
        self._log.append(entry)
        self._open.setdefault((lane, message_id), []).append(entry)
        waiting, self._overtaken = self._overtaken, []
        if drawn.delay_s or drawn.overtaken:
            task = asyncio.get_running_loop().create_task(self._deliver_later(message, copies, drawn))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        else:
            await self._deliver(message, copies)
        for overtaken in waiting:
            overtaken.set()

    async def _deliver_later(self, message: Message, copies: int, drawn: Fate) -> None:
        await asyncio.sleep(drawn.delay_s)
        if drawn.overtaken:
            passed = asyncio.Event()
            self._overtaken.append(passed)
            try:
                async with asyncio.timeout(OVERTAKEN_S):
                    await passed.wait()
            except TimeoutError:
                pass  # nothing came to overtake it
        try:
            await self._deliver(message, copies)
        except BrokerError as error:  # its sender is gone: the call's own deadline says the rest
            log.warning("a record of lane %s, held back on purpose, was not sent: %s", message.lane, error)

    async def _deliver(self, message: Message, copies: int) -> None:
        for _ in range(copies):
            await self._inner.send(REWARD_QUEUE, message.body, message_id=message.message_id, lane=message.lane)

    async def receive(
        self, queue: str, *, timeout_s: float, lease_s: float = 30.0, lane: str | None = None
    ) -> Lease | None:
        return await self._inner.receive(queue, timeout_s=timeout_s, lease_s=lease_s, lane=lane)

    async def renew(self, lease: Lease, lease_s: float = 30.0) -> None:
        await self._inner.renew(lease, lease_s)

    async def complete(self, lease: Lease) -> None:
        await self._inner.complete(lease)
        self._settle(lease, "paired")

    async def abandon(self, lease: Lease) -> None:
        await self._inner.abandon(lease)

    async def dead_letter(self, lease: Lease, *, code: str, reason: str) -> None:
        await self._inner.dead_letter(lease, code=code, reason=reason)
        self._settle(lease, code)

    def _settle(self, lease: Lease, how: str) -> None:
        """Note how a record ended; the first copy's end is the record's."""
        if lease.queue != REWARD_QUEUE:
            return
        lane, message_id = lease.message.lane, lease.message.message_id
        entries = self._open.get((lane, message_id), [])
        if how == "paired" and any(entry.settled == "paired" for entry in entries):
            how = "duplicate"  # its command came to a worker twice
        for entry in entries:
            if not entry.settled:
                entry.settled, entry.settled_s = how, self._now()
                entry.crossed = how == "paired" and self._asked.get(lane) != message_id
                return

    def _now(self) -> float:
        return time.monotonic() - self._started

    async def peek(self, queue: str, limit: int = 100) -> list[Message]:
        return await self._inner.peek(queue, limit)

    async def stats(self, queue: str) -> QueueStats:
        return await self._inner.stats(queue)

    async def close(self) -> None:
        late = list(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await self._inner.close()
