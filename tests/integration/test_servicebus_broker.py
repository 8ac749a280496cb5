"""The Service Bus broker beside the contract: secrets, what is missing, restarts. All against the unmodified SDK."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator

import pytest
from buses import KEY, Bus, amqp_broker, connection_string, namespace

from callwright.serving.errors import UserError
from callwright.serving.queues.broker import START_S, BrokerError, Lease, LeaseLost, Message, dead_letters
from callwright.serving.queues.servicebus import ServiceBusBroker
from callwright.serving.queues.servicebus_connection import Connection
from callwright.serving.queues.servicebus_link import lane_of, session_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Q = "commandqueue-web"
PATIENCE_S = 60.0
HOLDER = """
import asyncio
from callwright.serving.queues.servicebus import ServiceBusBroker
async def main():
    lease = await ServiceBusBroker("LOOPBACK_BUS").receive("commandqueue-web", timeout_s=60, lease_s=3600)
    print(lease.message.body.decode(), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    with namespace(monkeypatch) as bus:
        yield bus


@pytest.fixture
async def broker(bus: Bus) -> AsyncIterator[ServiceBusBroker]:
    broker = ServiceBusBroker(bus.variable, prefix=bus.prefix)
    yield broker
    await broker.close()


async def take(broker: ServiceBusBroker, lane: str | None = None, queue: str = Q, lease_s: float = 60) -> Lease:
    lease = await broker.receive(queue, timeout_s=PATIENCE_S, lane=lane, lease_s=lease_s)
    assert lease is not None
    return lease


async def test_a_message_there_and_its_answer_back(broker: ServiceBusBroker) -> None:
    await broker.start(Q)
    await broker.send(Q, b'{"type":"web"}', message_id="m", lane="a")
    lease = await take(broker)
    assert lease.message == Message(b'{"type":"web"}', "m", "a", delivery_count=1)
    await broker.dead_letter(lease, code="foreign_type", reason="not ours")
    dead = await take(broker, queue=dead_letters(Q))
    assert (dead.message.code, dead.message.reason, dead.message.lane) == ("foreign_type", "not ours", "a")
    await broker.complete(dead)


async def test_a_lane_asked_for_by_name_answers_at_once_the_second_time(broker: ServiceBusBroker) -> None:
    """Its link stays: opening one takes the SDK longer than everything here after the first message."""
    bodies = [b"%d" % number for number in range(10)]
    for body in bodies:
        await broker.send(Q, body, lane="a")
    seen, begin = [], 0.0
    for _ in bodies:
        lease = await take(broker, lane="a")
        seen.append(lease.message.body)
        await broker.complete(lease)
        begin = begin or time.monotonic()
    assert seen == bodies
    assert time.monotonic() - begin < 9 * 0.45  # what nine new links take at least


async def test_a_lock_is_renewed_for_as_long_as_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with amqp_broker(lock_s=10) as (_, port):
        monkeypatch.setenv("LOOPBACK_BUS", connection_string(port))
        broker = ServiceBusBroker("LOOPBACK_BUS")
        await broker.send(Q, b"1", lane="a")
        lease = await take(broker, lease_s=120)
        await asyncio.sleep(14)
        await broker.complete(lease)
        assert await broker.receive(Q, timeout_s=0.5) is None
        await broker.close()


async def test_a_holder_that_vanishes_loses_its_message_when_the_lock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with amqp_broker(lock_s=5) as (_, port):
        monkeypatch.setenv("LOOPBACK_BUS", connection_string(port))
        broker = ServiceBusBroker("LOOPBACK_BUS")
        await broker.send(Q, b"1", lane="a")
        command = [sys.executable, "-c", HOLDER]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == "1\n"
            holder.send_signal(signal.SIGSTOP)  # its connection stays, as that of a machine that lost its power does
            try:
                lease = await take(broker)
                assert (lease.message.body, lease.message.delivery_count) == (b"1", 2)
            finally:
                holder.kill()
        await broker.complete(lease)
        await broker.close()


async def test_a_planted_secret_appears_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    with namespace(monkeypatch) as bus:
        broker = ServiceBusBroker(bus.variable, prefix=bus.prefix)
        said.append(repr(broker) + repr(vars(broker)) + repr(Connection(bus.variable)))
        await broker.send(Q, b"1", lane="a")
        lease = await take(broker)
        said.append(repr(lease) + repr(vars(broker)))
        await broker.complete(lease)
        await broker.close()
    absent = ServiceBusBroker(bus.variable, prefix=bus.prefix)  # nothing listens there any more
    for work in (absent.start(Q), absent.send(Q, b"1"), absent.receive(Q, timeout_s=PATIENCE_S)):
        try:
            await work
            pytest.fail("it reached a broker that is gone")
        except BrokerError as error:
            said.append("".join(traceback.format_exception(error)))
    await absent.close()
    for variable in ("SharedAccessKey", "SharedAccessSignature", "sig"):
        said.append(Connection(bus.variable).said(ValueError(f"{variable}={KEY}; {KEY}")))
    everything = "\n".join(said) + caplog.text
    assert "127.0.0.1" in everything
    assert KEY not in everything
    assert KEY.rstrip("=") not in everything


@pytest.mark.parametrize("text", ["", "no connection string", f"Endpoint=;SharedAccessKey={KEY}"])
async def test_a_missing_or_wrong_connection_string_is_the_users(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MY_BUS", text)
    broker = ServiceBusBroker("MY_BUS")
    with pytest.raises(UserError, match="MY_BUS") as caught:
        await broker.start(Q)
    assert KEY not in str(caught.value)
    await broker.close()


async def test_a_missing_sdk_is_said_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_BUS", connection_string(1))
    for module in ("azure.servicebus", "azure.servicebus.aio"):
        monkeypatch.setitem(sys.modules, module, None)
    broker = ServiceBusBroker("MY_BUS")
    for work in (broker.start(Q), broker.send(Q, b"1"), broker.receive(Q, timeout_s=1), broker.peek(Q)):
        with pytest.raises(UserError, match=r"callwright\[servicebus\]"):
            await work
    await broker.close()


async def test_a_lease_whose_service_is_gone_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with amqp_broker(lock_s=2) as (_, port):
        monkeypatch.setenv("LOOPBACK_BUS", connection_string(port))
        broker = ServiceBusBroker("LOOPBACK_BUS")
        await broker.send(Q, b"1", lane="a")
        lease = await take(broker)

    async def renew_for_ever() -> None:
        while True:
            await broker.renew(lease, 60)
            await asyncio.sleep(0.1)

    with pytest.raises(LeaseLost):
        await asyncio.wait_for(renew_for_ever(), PATIENCE_S)
    with pytest.raises(BrokerError):
        await broker.complete(lease)
    await broker.close()


@pytest.mark.parametrize("prefix", ["absent-", "plain-"])
async def test_a_queue_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    with amqp_broker() as (_, port):
        monkeypatch.setenv("LOOPBACK_BUS", connection_string(port))
        broker = ServiceBusBroker("LOOPBACK_BUS", prefix=prefix)
        with pytest.raises(BrokerError, match=rf"{prefix}{Q} \(it must exist, with sessions on\)"):
            await broker.start(Q)
        await broker.close()


async def test_an_endpoint_that_never_answers_is_said_within_the_start_up_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("LOOPBACK_BUS", connection_string(silent.getsockname()[1]))
        broker = ServiceBusBroker("LOOPBACK_BUS")
        begin = time.monotonic()
        with pytest.raises(BrokerError, match="sb://127"):
            await broker.start(Q)
        assert time.monotonic() - begin < 3 * START_S
        await broker.close()


async def test_it_goes_on_after_the_service_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with amqp_broker() as (_, port):
        monkeypatch.setenv("LOOPBACK_BUS", connection_string(port))
        broker = ServiceBusBroker("LOOPBACK_BUS")
        await broker.send(Q, b"1", lane="a")
        await broker.complete(await take(broker, lane="a"))
    with pytest.raises(BrokerError):
        await broker.receive(Q, timeout_s=1, lane="a")
    with amqp_broker(port):
        await broker.send(Q, b"2", lane="a")
        assert (await take(broker, lane="a")).message.body == b"2"
        assert (await broker.receive(Q, timeout_s=0.2)) is None
        await broker.close()


@pytest.mark.parametrize("lane", ["", "a", "~", "~~a", "a~"])
def test_every_lane_is_a_session_of_its_own(lane: str) -> None:
    assert session_of(lane) != ""
    assert lane_of(session_of(lane)) == lane
