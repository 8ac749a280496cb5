"""What does a broker cost a call? A dispatcher and a worker with nothing to do, at two ends of each broker.

The ends are two brokers on one event loop: for sqlite two connections to one file, for Service Bus two clients of the
SDK. The Service Bus is the namespace in CALLWRIGHT_SERVICEBUS, or else the tests' broker on loopback, which tells what
the SDK and our side of it cost, not what the service does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.common import Measured, Row, Spread, progress, run
from callwright.envs.executors.brokers import open_broker
from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.executor import Record, record_of
from callwright.envs.executors.settings import ExecutorSettings
from callwright.serving.protocol.tools import WEB
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, Broker, command_queue
from callwright.serving.queues.dispatcher import Dispatcher
from callwright.serving.queues.reply import CallStatus

BROKERS = ("memory", "sqlite", "servicebus")
HEADLINE = tuple(f"{broker}_{what}" for broker in BROKERS for what in ("round_trip_p50_ms", "calls_per_s"))
LANES = 16
AT_ONCE = 8
TIMEOUT_S = 60.0
SHARE = {"servicebus": 0.1}  # of the calls: there one takes about a second
VARIABLE = "CALLWRIGHT_SERVICEBUS"
LOOPBACK = Path(__file__).parents[1] / "tests" / "integration" / "amqp_broker.py"
CALL = ToolCall("web", {"q": "anything", "k": 1})


class Idle:
    """An executor that costs nothing."""

    name = "idle"

    async def start(self) -> None: ...

    async def run(self, call: ToolCall) -> Record:
        return record_of(call, CallStatus.OK)

    async def close(self) -> None: ...


@contextmanager
def _namespace() -> Iterator[str]:
    """A prefix for the queues, in the namespace of VARIABLE. Where that is unset, it is one on loopback meanwhile."""
    if os.environ.get(VARIABLE):
        yield ""
        return
    command = [sys.executable, str(LOOPBACK), "0", "60"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            endpoint = f"Endpoint=sb://127.0.0.1:{int(broker.stdout.readline())}"
            os.environ[VARIABLE] = f"{endpoint};SharedAccessKeyName=k;SharedAccessKey=aw==;UseDevelopmentEmulator=true;"
            yield f"bench{os.getpid()}-"
        finally:
            os.environ.pop(VARIABLE, None)
            broker.kill()


@contextmanager
def _ends(kind: str) -> Iterator[Callable[[], Broker]]:
    """A function that opens one more end of the same queues."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ExecutorSettings(queues=Path(folder) / "queues.db", servicebus_env=VARIABLE)
        if kind == "memory":  # one process, so one broker
            only = open_broker(settings)
            yield lambda: only
        elif kind == "sqlite":
            yield lambda: open_broker(settings.model_copy(update={"broker": "sqlite"}))
        else:
            with _namespace() as prefix:
                chosen = settings.model_copy(update={"broker": "servicebus", "servicebus_prefix": prefix})
                yield lambda: open_broker(chosen)


@asynccontextmanager
async def _running(kind: str) -> AsyncIterator[Dispatcher]:
    """A dispatcher whose calls are answered at the other end."""
    with _ends(kind) as end:
        here, there = end(), end()
        await here.start(command_queue(WEB.name), REWARD_QUEUE)
        worker = CommandWorker(there, Idle(), WEB, concurrency=AT_ONCE)
        dispatcher = Dispatcher(here, (WEB,), lanes=LANES)
        task = asyncio.create_task(worker.run())
        try:
            yield dispatcher
        finally:
            task.cancel()
            await asyncio.wait([task])
            await dispatcher.close()
            await here.close()
            await there.close()


async def _call(dispatcher: Dispatcher) -> float:
    """Milliseconds of one call."""
    reply = await dispatcher.call(CALL, timeout_s=TIMEOUT_S)
    if reply.status is not CallStatus.OK:
        raise RuntimeError(reply.cause)
    return reply.seconds * 1000


async def _repeat(dispatcher: Dispatcher, calls: int) -> tuple[float, float]:
    """The median of calls one after another, and how many a second come through ``AT_ONCE`` at a time."""
    alone = [await _call(dispatcher) for _ in range(calls)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            await _call(dispatcher)

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(calls)))
    return statistics.median(alone), calls / (time.perf_counter() - begin)


async def _measure(calls: int, repeats: int) -> Measured:
    rows: list[Row] = []
    headline: dict[str, float] = {}
    for kind in BROKERS:
        progress(f"brokers: {kind}")
        async with _running(kind) as dispatcher:
            some = max(LANES, round(calls * SHARE.get(kind, 1.0)))
            await asyncio.gather(*(_call(dispatcher) for _ in range(LANES)))  # every lane has been used once
            taken = [await _repeat(dispatcher, some) for _ in range(repeats)]
        latency, rate = (Spread.of(values) for values in zip(*taken, strict=True))
        columns = {**latency.columns("round_trip_p50_ms"), **rate.columns("calls_per_s")}
        rows.append({"broker": kind, "calls": some, **columns})
        headline |= {f"{kind}_round_trip_p50_ms": latency.median, f"{kind}_calls_per_s": rate.median}
    where = "a namespace" if os.environ.get(VARIABLE) else "a broker on loopback"
    return Measured(rows, headline, [f"{AT_ONCE} calls at once in {LANES} lanes; servicebus is {where}"])


def measure(options: argparse.Namespace) -> Measured:
    return asyncio.run(_measure(options.calls, options.repeats))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=200, help="calls of each kind in a repeat; servicebus has a tenth")
    parser.add_argument("--repeats", type=int, default=5)


def main(argv: Sequence[str] | None = None) -> int:
    return run("brokers", measure, HEADLINE, argv, _options)


if __name__ == "__main__":
    sys.exit(main())
