"""The memory broker keeps the broker contract: bytes, lanes, leases, dead letters."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.queues.broker import BrokerClosed, Lease, LeaseLost, Message, dead_letters
from callwright.serving.queues.memory import MemoryBroker

pytestmark = pytest.mark.unit

Q = "commandqueue-web"


async def take(broker: MemoryBroker, lane: str | None = None, lease_s: float = 30.0) -> Lease:
    lease = await broker.receive(Q, timeout_s=5, lane=lane, lease_s=lease_s)
    assert lease is not None
    return lease


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(max_deliveries=3)


async def test_the_body_and_the_id_travel_as_they_are(broker: MemoryBroker) -> None:
    body = bytes(range(256))
    await broker.send(Q, body, message_id="m", lane="a")
    lease = await take(broker)
    assert lease.message == Message(body, "m", "a", delivery_count=1)


async def test_the_same_id_twice_is_two_messages(broker: MemoryBroker) -> None:
    await broker.send(Q, b"1", message_id="m")
    await broker.send(Q, b"2", message_id="m")
    assert [message.body for message in await broker.peek(Q)] == [b"1", b"2"]


async def test_a_lane_has_one_lease_and_other_lanes_go_on(broker: MemoryBroker) -> None:
    for body, lane in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b")):
        await broker.send(Q, body, lane=lane)
    first, second = await take(broker), await take(broker)
    assert [first.message.body, second.message.body] == [b"a1", b"b1"]
    assert await broker.receive(Q, timeout_s=0.01) is None
    await broker.complete(first)
    assert (await take(broker)).message.body == b"a2"


async def test_a_receiver_waits_for_its_own_lane(broker: MemoryBroker) -> None:
    waiting = asyncio.create_task(take(broker, lane="b"))
    await asyncio.sleep(0)
    await broker.send(Q, b"a", lane="a")
    await broker.send(Q, b"b", lane="b")
    assert (await waiting).message.body == b"b"


async def test_an_abandoned_message_comes_again_first(broker: MemoryBroker) -> None:
    await broker.send(Q, b"1", lane="a")
    await broker.send(Q, b"2", lane="a")
    await broker.abandon(await take(broker))
    lease = await take(broker)
    assert (lease.message.body, lease.message.delivery_count) == (b"1", 2)


async def test_a_lease_runs_out_and_cannot_be_settled_then(broker: MemoryBroker) -> None:
    await broker.send(Q, b"1")
    lost = await take(broker, lease_s=0.01)
    again = await take(broker)
    assert again.message.delivery_count == 2
    for settle in (broker.complete(lost), broker.abandon(lost), broker.renew(lost)):
        with pytest.raises(LeaseLost):
            await settle
    await broker.complete(again)
    assert await broker.peek(Q) == []


async def test_a_renewed_lease_outlives_its_first_deadline(broker: MemoryBroker) -> None:
    await broker.send(Q, b"1")
    lease = await take(broker, lease_s=0.05)
    await broker.renew(lease, 30)
    assert await broker.receive(Q, timeout_s=0.1) is None
    await broker.complete(lease)


async def test_a_message_that_is_never_completed_becomes_a_dead_letter(broker: MemoryBroker) -> None:
    await broker.send(Q, b"poison", lane="a")
    for _ in range(3):
        await broker.abandon(await take(broker))
    (dead,) = await broker.peek(dead_letters(Q))
    assert (dead.body, dead.lane, dead.code, dead.delivery_count) == (b"poison", "a", "max_deliveries", 3)
    assert await broker.peek(Q) == []


async def test_dead_letters_keep_their_reason_and_can_be_taken(broker: MemoryBroker) -> None:
    for lane in ("a", "b"):
        await broker.send(Q, lane.encode(), message_id="m", lane=lane)
        await broker.dead_letter(await take(broker), code="foreign_type", reason="not ours")
    for lane in ("a", "b"):
        lease = await broker.receive(dead_letters(Q), timeout_s=1)
        assert lease is not None
        assert lease.message == Message(lane.encode(), "m", lane, 2, "foreign_type", "not ours")
        await broker.complete(lease)
    assert await broker.peek(dead_letters(Q)) == []


async def test_a_cancelled_receiver_loses_nothing(broker: MemoryBroker) -> None:
    waiting = [asyncio.create_task(take(broker)) for _ in range(2)]
    await asyncio.sleep(0)
    await broker.send(Q, b"1")
    waiting[0].cancel()
    assert (await waiting[1]).message.body == b"1"


async def test_closing_wakes_who_waits(broker: MemoryBroker) -> None:
    waiting = asyncio.create_task(broker.receive(Q, timeout_s=60))
    await asyncio.sleep(0)
    await broker.close()
    with pytest.raises(BrokerClosed):
        await waiting
    with pytest.raises(BrokerClosed):
        await broker.send(Q, b"1")


@settings(max_examples=60, deadline=None)
@given(
    lanes=st.lists(st.sampled_from("abc"), min_size=1, max_size=20),
    verdicts=st.lists(st.sampled_from(["complete", "abandon", "dead"]), max_size=40),
)
def test_every_lane_is_settled_in_order_whatever_happens(lanes: list[str], verdicts: list[str]) -> None:
    async def play() -> None:
        broker = MemoryBroker(max_deliveries=1000)
        sent: dict[str, list[bytes]] = defaultdict(list)
        settled: dict[str, list[bytes]] = defaultdict(list)
        for number, lane in enumerate(lanes):
            body = str(number).encode()
            sent[lane].append(body)
            await broker.send(Q, body, lane=lane)
        for verdict in [*verdicts, *["complete"] * len(lanes)]:
            lease = await broker.receive(Q, timeout_s=0)
            if lease is None:
                break
            if verdict == "abandon":
                await broker.abandon(lease)
                continue
            settled[lease.message.lane].append(lease.message.body)
            if verdict == "complete":
                await broker.complete(lease)
            else:
                await broker.dead_letter(lease, code="x", reason="y")
        assert settled == sent
        await broker.close()

    asyncio.run(play())
