"""Faults of the reward queue: addressed draws, and what each of them does to calls through the real dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from callwright.envs.executors.brokers import open_broker
from callwright.envs.executors.executor import Record, record_of
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.serving.errors import UserError
from callwright.serving.protocol.values import ToolCall, new_call_id
from callwright.serving.queues.broker import REWARD_QUEUE, QueueStats
from callwright.serving.queues.faults import FaultSettings, FaultyBroker, fate
from callwright.serving.queues.lanes import call_id_of
from callwright.serving.queues.reply import CallStatus, Reply
from callwright.training.config import load_config

pytestmark = pytest.mark.unit


MEMORY = ExecutorSettings(tools=("web",), lanes=4)


class Echo:
    """Answers with the question."""

    name = "echo"

    async def start(self) -> None: ...

    async def run(self, call: ToolCall) -> Record:
        return record_of(call, CallStatus.OK, said=call.arguments["q"])

    async def close(self) -> None: ...


@asynccontextmanager
async def running(settings: ExecutorSettings = MEMORY, **faults: Any) -> AsyncIterator[tuple[FaultyBroker, Executors]]:
    broker = FaultyBroker(open_broker(settings), FaultSettings(**faults), seed=3)
    async with Executors(settings, executors={"web": Echo()}, broker=broker) as executors:
        yield broker, executors


async def ask(executors: Executors, n: int, timeout_s: float = 20.0) -> list[Reply]:
    calls = [ToolCall("web", {"q": f"Q{i}", "k": 1}, id=new_call_id(f"call {i}")) for i in range(n)]
    return list(await asyncio.gather(*(executors.dispatcher.call(call, timeout_s=timeout_s) for call in calls)))


def test_a_fate_depends_on_its_address_and_each_dial_on_its_own_draw() -> None:
    some = FaultSettings(drop=0.3, delay="exponential", delay_s=2.0)
    fates = [fate(some, 0, str(i)) for i in range(2000)]
    assert fates == [fate(some, 0, str(i)) for i in range(2000)]
    assert fates != [fate(some, 1, str(i)) for i in range(2000)]
    assert 0.25 < mean(one.dropped for one in fates) < 0.35
    more = some.model_copy(update={"duplicate": 0.5, "reorder": 0.5})
    kept = [(one.dropped, one.delay_s) for one in fates]
    assert kept == [(one.dropped, one.delay_s) for one in (fate(more, 0, str(i)) for i in range(2000))]


@pytest.mark.parametrize("kind", ["constant", "exponential", "pareto"])
def test_delays_have_the_mean_they_were_given(kind: Any) -> None:
    settings = FaultSettings(delay=kind, delay_s=2.0)
    assert mean(fate(settings, 0, str(i)).delay_s for i in range(50_000)) == pytest.approx(2.0, rel=0.1)


async def test_outside_injecting_nothing_happens() -> None:
    async with running(drop=1.0) as (_, executors):
        assert all(reply.status is CallStatus.OK for reply in await ask(executors, 5))


async def test_dropped_records_are_faults_of_ours_and_the_log_says_so() -> None:
    async with running(drop=1.0) as (broker, executors):
        with broker.injecting() as log:
            replies = await ask(executors, 3, timeout_s=0.5)
    assert all(reply.status is CallStatus.INFRA_FAULT for reply in replies)
    assert len(log) == 3
    assert all(entry.fate.dropped and not entry.settled for entry in log)


async def test_late_and_overtaken_records_reach_their_own_calls() -> None:
    async with running(delay="exponential", delay_s=0.05, reorder=0.5) as (broker, executors):
        with broker.injecting() as log:
            replies = await ask(executors, 24)
    assert [f'"said":"Q{i}"' in reply.record.decode() for i, reply in enumerate(replies)] == [True] * 24
    assert {entry.settled for entry in log} == {"paired"}
    assert any(entry.fate.overtaken for entry in log)
    assert not any(entry.crossed for entry in log)


async def test_a_duplicate_is_dropped_and_counted_and_never_answers_another_call() -> None:
    async with running(duplicate=1.0) as (broker, executors):
        with broker.injecting() as log:
            replies = [await ask(executors, 4) for _ in range(3)]
        assert executors.dispatcher.duplicates == 8  # the second copies of the last round are read by nobody
    for asked in replies:
        assert [f'"said":"Q{i}"' in reply.record.decode() for i, reply in enumerate(asked)] == [True] * 4
    assert len(log) == 12
    assert all(entry.fate.duplicated and entry.settled == "paired" and not entry.crossed for entry in log)
    assert executors.dispatcher.retired == 0


async def test_a_second_record_of_a_call_that_had_its_reply_is_no_crossing() -> None:
    """Its command came to a worker twice, and the next call of the lane meets the second record."""
    broker = FaultyBroker(open_broker(MEMORY), FaultSettings(), seed=0)
    with broker.injecting() as log:
        await broker.send("commandqueue-web", b"1", message_id="a/0/x", lane="a")
        for _ in range(2):
            await broker.send(REWARD_QUEUE, b"r", message_id="a/0/x", lane="a")
        for following in ("a/1/y", "a/2/z"):
            lease = await broker.receive(REWARD_QUEUE, lane="a", timeout_s=5)
            assert lease is not None
            await broker.complete(lease)
            await broker.send("commandqueue-web", b"2", message_id=following, lane="a")
    assert [(entry.settled, entry.crossed) for entry in log] == [("paired", False), ("duplicate", False)]
    await broker.close()


@pytest.mark.slow
async def test_the_same_calls_meet_the_same_faults_in_other_lanes_and_over_another_broker(tmp_path: Path) -> None:
    sqlite = ExecutorSettings(
        tools=("web",), lanes=9, broker="sqlite", queues=tmp_path / "queues.db", journal=tmp_path / "journal.db"
    )
    met = []
    for settings in (MEMORY.model_copy(update={"lanes": 8}), sqlite):
        async with running(settings, drop=0.5) as (broker, executors):
            with broker.injecting() as log:
                await ask(executors, 8, timeout_s=4.0)
            met.append({call_id_of(entry.message_id): entry.fate.dropped for entry in log})
            assert await broker.stats(REWARD_QUEUE) == QueueStats(0, 0, None)
    assert met[0] == met[1]
    assert set(met[0].values()) == {True, False}


def test_faults_that_would_miss_the_records_of_other_processes_are_refused() -> None:
    changes = ["grpo.faults.drop=0.1", "executors.broker=sqlite", "executors.external=[web]"]
    with pytest.raises(UserError, match=r"quickstart\S*: grpo\.faults act on the records of this process alone"):
        load_config("quickstart", changes)
    assert load_config("quickstart", changes[:2]).grpo.faults == FaultSettings(drop=0.1)
