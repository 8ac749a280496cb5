"""Brokers for the tests that hold for every broker: each kind, and a way to open one more end of the same queues.

``servicebus`` is the namespace whose connection string is in CALLWRIGHT_SERVICEBUS, where it is set. Its queues (see
QUEUES) must exist, with sessions and MAX_DELIVERIES; what they hold is thrown away before each test. Elsewhere it is
the broker of amqp_broker.py on loopback, which needs python-qpid-proton.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from callwright.serving.queues.broker import Broker, dead_letters
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.servicebus import ServiceBusBroker
from callwright.serving.queues.sqlite import SqliteBroker

MAX_DELIVERIES = 3
QUEUES = ("commandqueue-web", "commandqueue-code", "presencequeue-web", "rewardqueue")
KINDS = ("memory", "sqlite", pytest.param("servicebus", marks=pytest.mark.slow))  # of fixtures; the last takes minutes
VARIABLE = "CALLWRIGHT_SERVICEBUS"
KEY = "cGxhbnRlZC1zZWNyZXQ="


@contextmanager
def amqp_broker(port: int = 0, lock_s: float = 60) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The broker of amqp_broker.py as a process, and its port."""
    for module in ("azure.servicebus", "proton"):
        if importlib.util.find_spec(module.split(".")[0]) is None or importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'callwright[servicebus,dev]'")
    command = [sys.executable, str(Path(__file__).with_name("amqp_broker.py")), str(port), str(lock_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running, int(running.stdout.readline())
        finally:
            running.kill()


def connection_string(port: int) -> str:
    """What the SDK needs to talk to it."""
    endpoint = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=test"
    return f"{endpoint};SharedAccessKey={KEY};UseDevelopmentEmulator=true;"


@dataclass(frozen=True, slots=True)
class Bus:
    """A namespace that the tests may use: the variable that its connection string is in, and the queues' prefix."""

    variable: str
    prefix: str


@contextmanager
def namespace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """The real one, or one on loopback."""
    if os.environ.get(VARIABLE):
        with ThreadPoolExecutor(1) as thread:  # beside the test's own loop
            thread.submit(asyncio.run, _empty(ServiceBusBroker(VARIABLE))).result()
        yield Bus(VARIABLE, "")
        return
    with amqp_broker() as (_, port):
        monkeypatch.setenv(VARIABLE, connection_string(port))
        yield Bus(VARIABLE, f"{uuid.uuid4().hex[:8]}-")


async def _empty(broker: Broker) -> None:
    for queue in (*QUEUES, *map(dead_letters, QUEUES)):
        while (lease := await broker.receive(queue, timeout_s=5)) is not None:
            await broker.complete(lease)
    await broker.close()


@asynccontextmanager
async def opened(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], Broker]]:
    """A function that opens one more end of the same queues; every end is closed afterwards."""
    made: list[Broker] = []

    def collect(make: Callable[[], Broker]) -> Callable[[], Broker]:
        def end() -> Broker:
            made.append(make())
            return made[-1]

        return end

    try:
        if kind == "memory":  # one process, so one broker
            only = MemoryBroker(max_deliveries=MAX_DELIVERIES)
            yield collect(lambda: only)
        elif kind == "sqlite":
            yield collect(lambda: SqliteBroker(folder / "queues.db", max_deliveries=MAX_DELIVERIES))
        else:
            with namespace(monkeypatch) as bus:
                yield collect(lambda: ServiceBusBroker(bus.variable, prefix=bus.prefix))
    finally:
        for broker in made:
            await broker.close()
