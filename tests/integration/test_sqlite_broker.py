"""The sqlite broker between real processes: kills lose nothing, deliveries are not doubled, waiting is cheap."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callwright.serving.errors import UserError
from callwright.serving.queues.broker import BrokerError, Lease
from callwright.serving.queues.sqlite import SqliteBroker
from callwright.serving.queues.sqlite_file import QueueFile

pytestmark = pytest.mark.integration

Q = "commandqueue-web"
PATIENCE_S = 60.0

# Each prints one line for each thing that the broker has acknowledged.
START = """
import asyncio, sys
from callwright.serving.queues.sqlite import SqliteBroker
broker = SqliteBroker(sys.argv[1])
"""
SENDER = """
async def main():
    for number in range(100_000):
        await broker.send("commandqueue-web", b"%d" % number, lane=str(number % 3))
        print(number, flush=True)
asyncio.run(main())
"""
HOLDER = """
async def main():
    lease = await broker.receive("commandqueue-web", timeout_s=60, lease_s=float(sys.argv[2]))
    print(lease.message.body.decode(), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""
WORKER = """
async def main():
    while (lease := await broker.receive("commandqueue-web", timeout_s=60)) is not None:
        if lease.message.body == b"stop":
            await broker.complete(lease)
            break
        await asyncio.sleep(0)
        await broker.complete(lease)
        print(lease.message.lane, lease.message.body.decode(), flush=True)
    await broker.close()
asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.fixture
async def broker(path: Path) -> AsyncIterator[SqliteBroker]:
    broker = SqliteBroker(path)
    yield broker
    await broker.close()


@contextlib.contextmanager
def process(code: str, path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", START + code, str(path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def read_line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line, "the process ended early"
    return line.strip()


async def take(broker: SqliteBroker, lease_s: float = 60.0) -> Lease:
    lease = await broker.receive(Q, timeout_s=PATIENCE_S, lease_s=lease_s)
    assert lease is not None
    return lease


async def test_a_killed_holders_message_comes_again(broker: SqliteBroker, path: Path) -> None:
    await broker.send(Q, b"1", lane="a")
    await broker.send(Q, b"2", lane="a")
    with process(HOLDER, path, "1.5") as holder:
        assert await asyncio.to_thread(read_line, holder) == "1"
        holder.send_signal(signal.SIGKILL)
        lease = await take(broker)
    assert (lease.message.body, lease.message.delivery_count) == (b"1", 2)
    await broker.complete(lease)
    assert (await take(broker)).message.body == b"2"


async def test_another_process_is_kept_out_while_the_lease_holds(broker: SqliteBroker, path: Path) -> None:
    await broker.send(Q, b"1", lane="a")
    await broker.send(Q, b"2", lane="a")
    with process(HOLDER, path, "3600") as holder:
        assert await asyncio.to_thread(read_line, holder) == "1"
        assert await broker.receive(Q, timeout_s=0.2) is None


async def test_what_was_acknowledged_is_there_after_a_kill(broker: SqliteBroker, path: Path) -> None:
    for _ in range(3):
        with process(SENDER, path) as sender:
            for _ in range(20):
                await asyncio.to_thread(read_line, sender)
            sender.send_signal(signal.SIGKILL)
            assert sender.stdout is not None
            acknowledged = 20 + len(sender.stdout.read().split())
        found = sorted(int(message.body) for message in await broker.peek(Q, 10_000))
        # One more may have been sent and not told of.
        assert found in (list(range(acknowledged)), list(range(acknowledged + 1)))
        for _ in found:
            await broker.complete(await take(broker))
    assert await broker.peek(Q) == []


async def test_two_processes_share_the_work_in_order(broker: SqliteBroker, path: Path) -> None:
    lanes, each = 5, 20
    with process(WORKER, path) as one, process(WORKER, path) as two:
        for number in range(each):
            for lane in range(lanes):
                await broker.send(Q, b"%d" % number, lane=f"lane{lane}")
        for lane in ("stop1", "stop2"):
            await broker.send(Q, b"stop", lane=lane)
        printed = [await asyncio.to_thread(worker.communicate, timeout=PATIENCE_S) for worker in (one, two)]
        assert [one.returncode, two.returncode] == [0, 0]
    done = [line for out, _ in printed for line in out.splitlines()]
    assert Counter(done) == Counter(f"lane{lane} {number}" for lane in range(lanes) for number in range(each))
    for out, _ in printed:  # what one process saw of a lane is in order
        for lane in range(lanes):
            seen = [int(line.split()[1]) for line in out.splitlines() if line.startswith(f"lane{lane} ")]
            assert seen == sorted(seen)


async def test_messages_outlive_the_broker(path: Path) -> None:
    first = SqliteBroker(path)
    await first.send(Q, b"1", message_id="m", lane="a")
    await first.close()
    second = SqliteBroker(path)
    assert (await take(second)).message.body == b"1"
    await second.close()


def test_many_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for attempt in range(10):
        path, gate = tmp_path / f"{attempt}.db", threading.Barrier(6)

        def opened(path: Path = path, gate: threading.Barrier = gate) -> None:
            gate.wait()
            QueueFile(path, 3).close()

        with ThreadPoolExecutor(6) as pool:
            for waiting in [pool.submit(opened) for _ in range(6)]:
                waiting.result()


async def test_a_locked_file_holds_up_no_loop(broker: SqliteBroker, path: Path) -> None:
    await broker.start()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sending = asyncio.create_task(broker.send(Q, b"1"))
    for _ in range(10):
        await asyncio.sleep(0.01)  # the loop goes on
    assert not sending.done()
    other.execute("COMMIT")
    other.close()
    await sending
    assert (await take(broker)).message.body == b"1"


@pytest.mark.slow
async def test_waiting_costs_next_to_nothing(broker: SqliteBroker) -> None:
    waiting = [asyncio.create_task(broker.receive(Q, timeout_s=3, lane=str(lane))) for lane in range(64)]
    await asyncio.sleep(1)
    begin = time.process_time()
    assert await asyncio.gather(*waiting) == [None] * 64
    assert time.process_time() - begin < 0.5  # of the two seconds that are left


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be read as the head of one" * 20, None])
async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "queues.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    broker = SqliteBroker(path)
    with pytest.raises(UserError, match=r"executors\.queues=.*queues\.db"):
        await broker.start(Q)
    await broker.close()


async def test_a_file_that_is_moved_away_fails_who_waits_and_the_next_one_serves(tmp_path: Path) -> None:
    path = tmp_path / "queues.db"
    here, there = SqliteBroker(path), SqliteBroker(path)
    await here.send(Q, b"lost", lane="a")
    waiting = asyncio.create_task(here.receive(Q, lane="b", timeout_s=PATIENCE_S))
    await asyncio.sleep(0)
    (tmp_path / "old").mkdir()
    for file in tmp_path.glob("queues.db*"):
        file.rename(tmp_path / "old" / file.name)
    with pytest.raises(BrokerError, match="was moved away or replaced"):
        await waiting
    await there.send(Q, b"new", lane="b")
    lease = await here.receive(Q, timeout_s=PATIENCE_S)
    assert lease is not None
    assert lease.message.body == b"new"
    for broker in (here, there):
        await broker.close()
