"""Brokers for the tests that hold for every broker: each kind, and a way to open one more end of the same queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from callwright.serving.queues.broker import Broker
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.sqlite import SqliteBroker

MAX_DELIVERIES = 3
KINDS = ("memory", "sqlite")


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Callable[[], Broker]]:
    """A function that opens one more end of the same queues; every end is closed afterwards."""
    made: list[Broker] = []

    def end() -> Broker:
        if kind == "memory":  # one process, so one broker
            broker: Broker = made[0] if made else MemoryBroker(max_deliveries=MAX_DELIVERIES)
        else:
            broker = SqliteBroker(folder / "queues.db", max_deliveries=MAX_DELIVERIES)
        made.append(broker)
        return broker

    try:
        yield end
    finally:
        for broker in made:
            await broker.close()
