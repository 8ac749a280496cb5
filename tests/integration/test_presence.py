"""Presence: a worker is there while it holds its sign, whichever broker; a dead one's sign goes by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from buses import KINDS, opened

from callwright.envs.executors.presence import Presence, await_worker, presence_queue, present_workers
from callwright.serving.queues.broker import Broker

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0
Open = Callable[[], Broker]


@pytest.fixture(params=KINDS)
async def end(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    async with opened(request.param, tmp_path, monkeypatch) as end:
        yield end


async def until(broker: Broker, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await present_workers(broker, "web") != count:
            await asyncio.sleep(0.05)


async def test_workers_are_seen_until_they_leave(end: Open) -> None:
    run = end()
    assert not await await_worker(run, "web", timeout_s=0.1)
    workers = [Presence(end(), "web", beat_s=1.0, lease_s=60.0) for _ in range(2)]
    beating = [asyncio.create_task(worker.run()) for worker in workers]
    assert await await_worker(run, "web", timeout_s=PATIENCE_S)
    await until(run, 2)
    for task, worker in zip(beating, workers, strict=True):
        task.cancel()
        await asyncio.wait([task])
        await worker.leave()
    await until(run, 0)


@pytest.mark.parametrize("end", ["memory", "sqlite"], indirect=True)
async def test_a_sign_that_was_not_taken_in_time_is_taken_by_the_next_beat(end: Open) -> None:
    run, held = end(), end()
    worker = Presence(end(), "web", beat_s=0.2, lease_s=60.0)
    queue = presence_queue("web")
    await held.send(queue, b"in the way", lane=worker.worker)
    first = await held.receive(queue, lane=worker.worker, timeout_s=5.0, lease_s=60.0)
    assert first is not None
    await worker.announce()  # another message of its lane is held: it cannot take its own
    await held.complete(first)
    await worker.announce()
    assert (await run.stats(queue)).depth == 1
    await until(run, 1)
    await worker.leave()
    await until(run, 0)


@pytest.mark.parametrize("end", ["memory", "sqlite"], indirect=True)
async def test_a_worker_that_stands_still_is_gone_and_comes_back(end: Open) -> None:
    run = end()
    worker = Presence(end(), "web", beat_s=5.0, lease_s=0.3)
    await worker.announce()
    await until(run, 0)
    steady = Presence(end(), "web", lease_s=60.0)
    await steady.announce()
    await worker.announce()  # its lease is lost, and so is its old sign
    await until(run, 1)
    await steady.leave()
    await until(run, 0)
