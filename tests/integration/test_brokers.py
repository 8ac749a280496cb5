"""The broker contract: bytes, lanes, leases, dead letters, waits. One suite for every broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from buses import KINDS, MAX_DELIVERIES, opened

from callwright.serving.queues.broker import (
    TOO_MANY_DELIVERIES,
    Broker,
    BrokerClosed,
    BrokerError,
    Lease,
    LeaseLost,
    Message,
    QueueStats,
    dead_letters,
)

pytestmark = pytest.mark.integration

Q = "commandqueue-web"
PATIENCE_S = 60.0  # for what must come; nothing below waits so long unless it fails

Open = Callable[[], Broker]


# Opening a link through the SDK takes half a second, so that kind alone takes two minutes.
@pytest.fixture(params=KINDS)
async def end(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    async with opened(request.param, tmp_path, monkeypatch) as end:
        yield end


@pytest.fixture
def broker(end: Open) -> Broker:
    return end()


async def take(broker: Broker, lane: str | None = None, lease_s: float = 60.0, queue: str = Q) -> Lease:
    lease = await broker.receive(queue, timeout_s=PATIENCE_S, lane=lane, lease_s=lease_s)
    assert lease is not None
    return lease


async def nothing(broker: Broker, lane: str | None = None, timeout_s: float = 0.05) -> bool:
    return await broker.receive(Q, timeout_s=timeout_s, lane=lane) is None


async def test_the_body_and_the_id_travel_as_they_are(broker: Broker) -> None:
    for body in (bytes(range(256)), b"", b"x" * 100_000):
        await broker.send(Q, body, message_id="m", lane="a")
        lease = await take(broker)
        assert lease.message == Message(body, "m", "a", delivery_count=1)
        await broker.complete(lease)


async def test_the_same_id_twice_is_two_messages(broker: Broker) -> None:
    await broker.send(Q, b"1", message_id="m")
    await broker.send(Q, b"2", message_id="m")
    assert [message.body for message in await broker.peek(Q)] == [b"1", b"2"]


async def test_peeking_touches_nothing_and_sees_what_is_leased(broker: Broker) -> None:
    for number in range(3):
        await broker.send(Q, b"%d" % number, message_id="m", lane="a")
    lease = await take(broker)
    assert [message.body for message in await broker.peek(Q)] == [b"0", b"1", b"2"]
    assert [message.body for message in await broker.peek(Q, limit=2)] == [b"0", b"1"]
    assert await broker.peek("commandqueue-code") == []
    await broker.complete(lease)
    assert (await take(broker)).message == Message(b"1", "m", "a", delivery_count=1)


async def test_stats_tell_depth_leases_and_age(broker: Broker) -> None:
    before = time.time() - 1  # a service may round
    assert await broker.stats(Q) == QueueStats(0, 0, None)
    for number in range(3):
        await broker.send(Q, b"%d" % number, lane="a")
    lease = await take(broker)
    stats = await broker.stats(Q)
    assert (stats.depth, stats.leased) == (3, 1)
    assert stats.oldest_s is not None
    assert 0 <= stats.oldest_s <= time.time() - before
    await broker.dead_letter(lease, code="c", reason="r")
    async with asyncio.timeout(PATIENCE_S):
        while (await broker.stats(Q)).depth != 2:  # a service may take a moment to let the lane go
            await asyncio.sleep(0.05)
    dead = await broker.stats(dead_letters(Q))
    assert dead.depth == 1
    assert not dead.leased
    assert dead.oldest_s is not None


async def test_stats_count_what_others_lease(end: Open) -> None:
    here, there = end(), end()
    for lane in "ab":
        await here.send(Q, b"x", lane=lane)
        await take(here, lane)
    assert (await there.stats(Q)).leased == 2


async def test_a_lane_has_one_lease_and_other_lanes_go_on(end: Open) -> None:
    here, there = end(), end()
    for body, lane in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b")):
        await here.send(Q, body, lane=lane)
    leases = {lease.message.body: (broker, lease) for broker in (here, there) for lease in [await take(broker)]}
    assert leases.keys() == {b"a1", b"b1"}  # which lane comes first is the broker's own
    assert await nothing(here)
    assert await nothing(there, lane="a")
    holder, first = leases[b"a1"]
    await holder.complete(first)
    assert (await take(there)).message.body == b"a2"


async def test_a_queue_without_lanes_is_one_lane(broker: Broker) -> None:
    await broker.send(Q, b"1")
    await broker.send(Q, b"2")
    lease = await take(broker)
    assert lease.message.lane == ""
    assert await nothing(broker)
    await broker.complete(lease)
    assert (await take(broker, lane="")).message.body == b"2"


async def test_queues_do_not_mix(broker: Broker) -> None:
    await broker.send("commandqueue-code", b"code", lane="a")
    assert await nothing(broker)
    assert (await take(broker, queue="commandqueue-code")).message.body == b"code"


async def test_a_receiver_waits_for_its_own_lane(end: Open) -> None:
    here, there = end(), end()
    waiting = asyncio.create_task(take(here, lane="b"))
    assert await nothing(here, lane="c")
    await there.send(Q, b"a", lane="a")
    await there.send(Q, b"b", lane="b")
    assert (await waiting).message.body == b"b"


async def test_every_waiting_receiver_gets_one(end: Open) -> None:
    here, there = end(), end()
    waiting = [asyncio.create_task(take(broker)) for broker in (here, here, there, there)]
    for number in range(4):
        await here.send(Q, b"%d" % number, lane=str(number))
    assert {lease.message.body for lease in await asyncio.gather(*waiting)} == {b"0", b"1", b"2", b"3"}


async def test_a_receiver_waits_for_a_lane_to_be_settled(end: Open) -> None:
    here, there = end(), end()
    await here.send(Q, b"1", lane="a")
    await here.send(Q, b"2", lane="a")
    lease = await take(here)
    waiting = asyncio.create_task(take(there))
    assert await nothing(there)
    await here.complete(lease)
    assert (await waiting).message.body == b"2"


async def test_a_wait_ends_at_its_deadline(broker: Broker) -> None:
    begin = time.monotonic()
    assert await broker.receive(Q, timeout_s=0.3) is None
    assert 0.3 <= time.monotonic() - begin < PATIENCE_S / 2


async def test_an_abandoned_message_comes_again_first(end: Open) -> None:
    here, there = end(), end()
    await here.send(Q, b"1", lane="a")
    await here.send(Q, b"2", lane="a")
    await here.abandon(await take(here))
    lease = await take(there)
    assert (lease.message.body, lease.message.delivery_count) == (b"1", 2)


async def test_a_lease_runs_out_and_cannot_be_settled_then(end: Open) -> None:
    here, there = end(), end()
    await here.send(Q, b"1")
    await here.send(Q, b"2")
    lost = await take(here, lease_s=0.05)
    again = await take(there)
    assert (again.message.body, again.message.delivery_count) == (b"1", 2)
    settlings = (
        here.complete(lost),
        here.abandon(lost),
        here.renew(lost),
        here.dead_letter(lost, code="x", reason="y"),
    )
    for settle in settlings:
        with pytest.raises(LeaseLost):
            await settle
    await there.complete(again)
    assert (await take(there)).message.body == b"2"


async def test_a_lease_that_ran_out_is_lost_though_nobody_took_it_over(broker: Broker) -> None:
    await broker.send(Q, b"1")
    lost = await take(broker, lease_s=0.05)
    await asyncio.sleep(0.2)
    with pytest.raises(LeaseLost):
        await broker.complete(lost)
    assert (await take(broker)).message.delivery_count == 2


async def test_a_receiver_gets_a_message_whose_lease_ran_out_while_others_are_busy(broker: Broker) -> None:
    await broker.send(Q, b"1")
    await take(broker, lease_s=0.1)
    waiting = asyncio.create_task(take(broker))
    while not waiting.done():
        assert await broker.receive("commandqueue-code", timeout_s=0) is None
    assert (await waiting).message.delivery_count == 2


async def test_a_lease_is_settled_once(broker: Broker) -> None:
    await broker.send(Q, b"1")
    lease = await take(broker)
    await broker.complete(lease)
    for settle in (broker.complete(lease), broker.abandon(lease), broker.renew(lease)):
        with pytest.raises(LeaseLost):
            await settle


async def test_a_renewed_lease_outlives_its_first_deadline(end: Open) -> None:
    here, there = end(), end()
    await here.send(Q, b"1")
    lease = await take(here, lease_s=2.0)
    await here.renew(lease, 60)
    assert await nothing(there, timeout_s=2.5)
    await here.complete(lease)


async def test_a_message_that_is_never_completed_becomes_a_dead_letter(broker: Broker) -> None:
    await broker.send(Q, b"poison", message_id="m", lane="a")
    await broker.send(Q, b"next", lane="a")
    await broker.abandon(await take(broker))
    for _ in range(MAX_DELIVERIES - 1):
        assert (await take(broker, lease_s=0.05)).message.body == b"poison"
    assert (await take(broker)).message.body == b"next"
    (dead,) = await broker.peek(dead_letters(Q))
    assert (dead.body, dead.message_id, dead.lane, dead.code) == (b"poison", "m", "a", TOO_MANY_DELIVERIES)
    assert dead.reason


async def test_one_may_wait_for_a_message_to_be_given_up(end: Open) -> None:
    here, there = end(), end()
    waiting = asyncio.create_task(take(there, queue=dead_letters(Q)))
    await here.send(Q, b"poison", lane="a")
    for _ in range(MAX_DELIVERIES):
        await take(here, lease_s=0.05)
    assert (await waiting).message.body == b"poison"


async def test_dead_letters_keep_their_reason_and_can_be_taken(end: Open) -> None:
    here, there = end(), end()
    for lane in ("a", "b"):
        await here.send(Q, lane.encode(), message_id="m", lane=lane)
        await here.dead_letter(await take(here), code="foreign_type", reason="not ours: é")
    found = set()
    for _ in range(2):
        lease = await take(there, queue=dead_letters(Q))
        found.add((lease.message.body, lease.message.lane))
        assert (lease.message.message_id, lease.message.code, lease.message.reason) == (
            "m",
            "foreign_type",
            "not ours: é",
        )
        await there.complete(lease)
    assert found == {(b"a", "a"), (b"b", "b")}
    assert await there.peek(dead_letters(Q)) == []


async def test_a_dead_letter_stays_one(broker: Broker) -> None:
    await broker.send(Q, b"1", lane="a")
    await broker.dead_letter(await take(broker), code="x", reason="y")
    for _ in range(MAX_DELIVERIES + 2):
        await broker.abandon(await take(broker, queue=dead_letters(Q)))
    lease = await take(broker, queue=dead_letters(Q))
    with pytest.raises(BrokerError, match="dead letter already"):
        await broker.dead_letter(lease, code="x", reason="y")
    await broker.complete(lease)


async def test_a_cancelled_receiver_loses_nothing(broker: Broker) -> None:
    waiting = [asyncio.create_task(take(broker)) for _ in range(2)]
    await asyncio.sleep(0)
    await broker.send(Q, b"1", message_id="m")
    waiting[0].cancel()
    assert (await waiting[1]).message == Message(b"1", "m", delivery_count=1)


@pytest.mark.parametrize("pause_us", [0, 100, 1_000, 20_000])
async def test_a_receiver_cancelled_at_any_moment_leaves_no_lease(broker: Broker, pause_us: int) -> None:
    await broker.send(Q, b"1", message_id="m")
    receiving = asyncio.create_task(broker.receive(Q, timeout_s=PATIENCE_S, lease_s=3600))
    await asyncio.sleep(0)
    time.sleep(pause_us / 1e6)  # the loop stands still: what the broker does elsewhere comes before the cancellation
    if receiving.cancel():
        await asyncio.wait([receiving])
    if receiving.cancelled():
        assert (await take(broker)).message == Message(b"1", "m", delivery_count=1)


async def test_closing_wakes_who_waits(broker: Broker) -> None:
    waiting = asyncio.create_task(broker.receive(Q, timeout_s=PATIENCE_S))
    assert await nothing(broker)
    await broker.close()
    with pytest.raises(BrokerClosed):
        await waiting
    with pytest.raises(BrokerClosed):
        await broker.send(Q, b"1")
    await broker.close()


async def test_many_lanes_at_once_keep_their_order(end: Open) -> None:
    """Two ends take from any lane, and half of the deliveries are given back."""
    lanes, each = 6, 5
    ends = (end(), end())
    seen: dict[str, list[int]] = {}
    left = lanes * each

    async def work(broker: Broker) -> None:
        nonlocal left
        while left:
            lease = await broker.receive(Q, timeout_s=0.1)
            if lease is None:
                continue
            number = int(lease.message.body)
            if number % 2 and lease.message.delivery_count == 1:
                await broker.abandon(lease)
                continue
            seen.setdefault(lease.message.lane, []).append(number)
            left -= 1
            await broker.complete(lease)

    for number in range(each):
        await asyncio.gather(*(ends[0].send(Q, b"%d" % number, lane=f"lane {lane}") for lane in range(lanes)))
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for broker in (*ends, *ends):
            group.create_task(work(broker))
    assert seen == {f"lane {lane}": list(range(each)) for lane in range(lanes)}
