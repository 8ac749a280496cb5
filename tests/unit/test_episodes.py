"""Episodes at a stateful tool: whose lane it is, in which order it is used, and what happens after a doubt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from callwright.serving.protocol.tools import AZURE, WEB
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, Lease, command_queue
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher, Episode
from callwright.serving.queues.memory import MemoryBroker

pytestmark = pytest.mark.unit


def az(name: str) -> ToolCall:
    return ToolCall("azure", {"azure_command": f"az {name}"})


class Bench:
    """A broker, a dispatcher of two lanes, and a hand to play the worker with."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.dispatcher = Dispatcher(self.broker, (WEB, AZURE), lanes=2)

    async def take(self) -> Lease:
        lease = await self.broker.receive(command_queue("azure"), timeout_s=5)
        assert lease is not None
        return lease

    async def answer(self, lease: Lease) -> str:
        """Settle a command; its lane."""
        record = json.dumps({"type": "azure", "status": "ok"}).encode()
        message = lease.message
        await self.broker.send(REWARD_QUEUE, record, message_id=message.message_id, lane=message.lane)
        await self.broker.complete(lease)
        return message.lane

    async def lane_of(self, episode: Episode | None, name: str = "x") -> str:
        """Make one call and answer it; the lane it came in."""
        where = episode or self.dispatcher
        call = asyncio.create_task(where.call(az(name), timeout_s=10))
        lane = await self.answer(await self.take())
        assert (await call).status is CallStatus.OK
        return lane


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.dispatcher.close()
    await made.broker.close()


async def test_an_episode_keeps_its_lane_and_no_other_gets_it(bench: Bench) -> None:
    seen: list[set[str]] = []
    for _ in range(4):  # more episodes than lanes: places go round, sessions do not
        with bench.dispatcher.episode() as one, bench.dispatcher.episode() as two:
            lanes = {await bench.lane_of(one) for _ in range(3)}, {await bench.lane_of(two) for _ in range(3)}
        assert [len(each) for each in lanes] == [1, 1]
        seen += lanes
    seen += [{await bench.lane_of(None)} for _ in range(3)]  # a call outside is an episode of one
    assert len(set().union(*seen)) == len(seen)
    assert bench.dispatcher.retired == 0  # nothing was in doubt


async def test_calls_of_an_episode_come_one_after_another_in_order(bench: Bench) -> None:
    with bench.dispatcher.episode() as episode:
        calls = [asyncio.create_task(episode.call(az(name), timeout_s=10)) for name in "abc"]
        for name in "abc":
            lease = await bench.take()
            assert json.loads(lease.message.body)["azure_command"] == f"az {name}"
            assert len(await bench.broker.peek(command_queue("azure"))) == 1
            await bench.answer(lease)
        assert {(await call).status for call in calls} == {CallStatus.OK}


async def test_a_second_copy_of_an_episodes_reply_is_dropped(bench: Bench) -> None:
    with bench.dispatcher.episode() as episode:
        first = asyncio.create_task(episode.call(az("first"), timeout_s=10))
        command = await bench.take()
        await bench.answer(command)
        assert (await first).status is CallStatus.OK
        second = b'{"type":"azure","status":"error"}'  # such as a killed worker's heir would publish
        message = command.message
        await bench.broker.send(REWARD_QUEUE, second, message_id=message.message_id, lane=message.lane)
        assert await bench.lane_of(episode) == message.lane
    assert (bench.dispatcher.duplicates, bench.dispatcher.retired) == (1, 0)


async def test_after_a_time_out_the_episodes_state_is_lost_and_others_go_on(bench: Bench) -> None:
    with bench.dispatcher.episode() as episode:
        slow = asyncio.create_task(episode.call(az("slow"), timeout_s=0.5))
        await bench.take()  # and never answers
        assert (await slow).status is CallStatus.INFRA_FAULT
        again = await episode.call(az("next"), timeout_s=10)
        assert again.status is CallStatus.INFRA_FAULT
        assert "an earlier call of this episode ended in doubt" in again.cause
    for _ in range(2):  # both places are there
        with bench.dispatcher.episode() as other, bench.dispatcher.episode() as another:
            assert await bench.lane_of(other) != await bench.lane_of(another)


async def test_a_waiting_episode_gets_the_lane_of_one_that_ends(bench: Bench) -> None:
    with bench.dispatcher.episode() as third:
        with bench.dispatcher.episode() as one, bench.dispatcher.episode() as two:
            held = {await bench.lane_of(one), await bench.lane_of(two)}
            waiting = asyncio.create_task(third.call(az("x"), timeout_s=10))
            refused = await third.call(az("y"), timeout_s=0.05)
            assert "waiting for a lane" in refused.cause
        assert await bench.answer(await bench.take()) not in held
        assert (await waiting).status is CallStatus.OK
