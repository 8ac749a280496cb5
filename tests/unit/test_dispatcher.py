"""The dispatcher: order in a lane, skew, time-outs, cancellation, exhaustion. The tests play the worker."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.protocol.tools import CODE, WEB
from callwright.serving.protocol.values import RejectionCode, ToolCall
from callwright.serving.queues.azure_command_sender import azure_command_sender
from callwright.serving.queues.broker import REWARD_QUEUE, BrokerError, Lease, command_queue, dead_letters
from callwright.serving.queues.code_command_sender import code_command_sender
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher, Reply
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.web_command_sender import web_command_sender

pytestmark = pytest.mark.unit

Answer = Callable[[Lease], Awaitable[None]]


def search(q: str) -> ToolCall:
    return ToolCall("web", {"q": q, "k": 1})


class Bench:
    """A broker, a dispatcher, and hands to play the worker with."""

    def __init__(self, lanes: int) -> None:
        self.broker = MemoryBroker()
        self.dispatcher = Dispatcher(self.broker, (WEB, CODE), lanes=lanes)

    async def command(self, tool: str = "web") -> Lease:
        lease = await self.broker.receive(command_queue(tool), timeout_s=5)
        assert lease is not None
        return lease

    async def answer(self, lease: Lease, message_id: str | None = None) -> None:
        said = json.loads(lease.message.body)
        record = json.dumps({"type": "web", "status": "ok", "echo": said["q"]}).encode()
        await self.broker.send(
            REWARD_QUEUE, record, message_id=message_id or lease.message.message_id, lane=lease.message.lane
        )
        await self.broker.complete(lease)

    async def dead_replies(self) -> list[str]:
        return [message.code for message in await self.broker.peek(dead_letters(REWARD_QUEUE))]

    async def eventually(self, what: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(5):
            while not await what():
                await asyncio.sleep(0.001)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(lanes=1)
    yield made
    await made.dispatcher.close()
    await made.broker.close()


def echo(reply: Reply) -> Any:
    return json.loads(reply.record)["echo"]


async def test_a_reply_is_the_record_byte_for_byte(bench: Bench) -> None:
    record = b' {"status" : "ok",\t"x":"\\u00e9\xc3\xa9"} \n'
    calling = asyncio.create_task(bench.dispatcher.call(search("x"), timeout_s=5))
    lease = await bench.command()
    assert lease.message.body == b'{"type":"web","q":"x","k":1}'
    await bench.broker.send(REWARD_QUEUE, record, message_id=lease.message.message_id, lane=lease.message.lane)
    reply = await calling
    assert (reply.record, reply.status, reply.cause) == (record, CallStatus.OK, "")


@settings(max_examples=40, deadline=None)
@given(lanes=st.integers(1, 4), seed=st.integers(0, 1000), calls=st.integers(1, 12))
def test_replies_never_cross_in_whatever_order_they_come(lanes: int, seed: int, calls: int) -> None:
    async def play() -> None:
        bench = Bench(lanes)
        order = random.Random(seed)

        async def worker() -> None:
            while True:
                held = [await bench.command()]
                while (more := await bench.broker.receive(command_queue("web"), timeout_s=0)) is not None:
                    held.append(more)
                order.shuffle(held)
                for lease in held:
                    await bench.answer(lease)

        working = asyncio.create_task(worker())
        replies = await asyncio.gather(*(bench.dispatcher.call(search(f"q{i}"), timeout_s=5) for i in range(calls)))
        working.cancel()
        assert [echo(reply) for reply in replies] == [f"q{i}" for i in range(calls)]
        assert bench.dispatcher.retired == 0
        await bench.dispatcher.close()

    asyncio.run(play())


async def test_a_skewed_reply_is_an_infra_fault_and_retires_the_epoch(bench: Bench) -> None:
    calling = asyncio.create_task(bench.dispatcher.call(search("a"), timeout_s=5))
    first = await bench.command()
    await bench.answer(first, message_id="someone else's")
    reply = await calling
    assert reply.status is CallStatus.INFRA_FAULT
    assert "skew" in reply.cause
    assert await bench.dead_replies() == ["skew"]

    calling = asyncio.create_task(bench.dispatcher.call(search("b"), timeout_s=5))
    second = await bench.command()
    assert second.message.lane != first.message.lane
    await bench.answer(second)
    assert echo(await calling) == "b"


async def test_a_second_copy_of_an_accepted_reply_is_dropped_and_spoils_nothing(bench: Bench) -> None:
    calling = asyncio.create_task(bench.dispatcher.call(search("a"), timeout_s=5))
    first = await bench.command()
    await bench.answer(first)
    assert echo(await calling) == "a"
    for _ in range(2):  # two workers were killed between the publication and the settlement
        await bench.broker.send(
            REWARD_QUEUE, b'{"echo":"again"}', message_id=first.message.message_id, lane=first.message.lane
        )
    calling = asyncio.create_task(bench.dispatcher.call(search("b"), timeout_s=5))
    second = await bench.command()
    assert (second.message.lane, second.message.message_id) != (first.message.lane, first.message.message_id)
    await bench.answer(second)
    assert echo(await calling) == "b"
    assert (bench.dispatcher.duplicates, bench.dispatcher.retired) == (2, 0)
    assert await bench.dead_replies() == []


async def test_an_id_of_another_lane_is_a_skew_and_no_second_copy(bench: Bench) -> None:
    for number, foreign in enumerate(["other-web-0.0/0", "x", "call_cw_0"]):
        calling = asyncio.create_task(bench.dispatcher.call(search("a"), timeout_s=5))
        await bench.answer(await bench.command(), message_id=foreign)
        assert "skew" in (await calling).cause
        assert (bench.dispatcher.duplicates, bench.dispatcher.retired) == (0, number + 1)


async def test_a_time_out_names_its_wait_and_the_late_reply_is_a_dead_letter(bench: Bench) -> None:
    calling = asyncio.create_task(bench.dispatcher.call(search("slow"), timeout_s=0.05))
    slow = await bench.command()
    reply = await calling
    assert reply.status is CallStatus.INFRA_FAULT
    assert "waiting for the reply in lane" in reply.cause
    assert json.loads(reply.record)["status"] == "infra_fault"

    calling = asyncio.create_task(bench.dispatcher.call(search("next"), timeout_s=5))
    following = await bench.command()
    await bench.answer(slow)  # comes while the next call of the same place waits
    await bench.answer(following)
    assert echo(await calling) == "next"

    async def buried() -> bool:
        return await bench.dead_replies() == ["late_reply"]

    await bench.eventually(buried)


async def test_a_timed_out_command_that_nobody_took_is_taken_back(bench: Bench) -> None:
    reply = await bench.dispatcher.call(search("x"), timeout_s=0.02)
    assert reply.status is CallStatus.INFRA_FAULT

    async def taken_back() -> bool:
        return [m.code for m in await bench.broker.peek(dead_letters(command_queue("web")))] == ["caller_gone"]

    await bench.eventually(taken_back)


async def test_an_exhausted_pool_has_a_deadline_and_a_name(bench: Bench) -> None:
    holding = asyncio.create_task(bench.dispatcher.call(search("first"), timeout_s=5))
    lease = await bench.command()
    assert [name for name, _ in bench.dispatcher.waits.snapshot()] == [
        f"waiting for the reply in lane {lease.message.lane} of queue web"
    ]
    reply = await bench.dispatcher.call(search("second"), timeout_s=0.05)
    assert reply.status is CallStatus.INFRA_FAULT
    assert "waiting for a lane of queue web" in reply.cause
    await bench.answer(lease)
    assert (await holding).status is CallStatus.OK


async def test_another_tool_has_its_own_lanes(bench: Bench) -> None:
    holding = asyncio.create_task(bench.dispatcher.call(search("held"), timeout_s=5))
    lease = await bench.command()
    other = asyncio.create_task(bench.dispatcher.call(ToolCall("code", {"code_command": "true"}), timeout_s=5))
    assert (await bench.command("code")).message.lane != lease.message.lane
    other.cancel()
    await bench.answer(lease)
    await holding


async def test_cancellation_passes_through_and_retires_the_epoch(bench: Bench) -> None:
    calling = asyncio.create_task(bench.dispatcher.call(search("a"), timeout_s=5))
    first = await bench.command()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert bench.dispatcher.retired == 1
    calling = asyncio.create_task(bench.dispatcher.call(search("b"), timeout_s=5))
    second = await bench.command()
    assert second.message.lane != first.message.lane
    await bench.answer(second)
    assert echo(await calling) == "b"


async def test_cancelling_a_wait_for_a_lane_loses_no_lane(bench: Bench) -> None:
    holding = asyncio.create_task(bench.dispatcher.call(search("held"), timeout_s=5))
    lease = await bench.command()
    waiting = asyncio.create_task(bench.dispatcher.call(search("waits"), timeout_s=5))
    await asyncio.sleep(0)
    waiting.cancel()
    await bench.answer(lease)
    await holding
    calling = asyncio.create_task(bench.dispatcher.call(search("after"), timeout_s=5))
    await bench.answer(await bench.command())
    assert echo(await calling) == "after"
    assert bench.dispatcher.retired == 0


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ToolCall("web", {"q": "x", "k": 99}), RejectionCode.OUT_OF_RANGE),
        (ToolCall("web", {"q": "x", "k": 1, "type": "code"}), RejectionCode.FOREIGN_TYPE),
        (ToolCall("teleport", {}), RejectionCode.UNKNOWN_TOOL),
    ],
)
async def test_what_the_validator_refuses_is_never_sent(bench: Bench, call: ToolCall, code: RejectionCode) -> None:
    reply = await bench.dispatcher.call(call, timeout_s=5)
    assert reply.status is CallStatus.REJECTED
    assert json.loads(reply.record)["code"] == code
    assert await bench.broker.peek(command_queue("web")) == []


@pytest.mark.parametrize(
    ("record", "status", "cause"),
    [
        (b'{"type":"web","status":"error","stderr":"a\\nlast line\\n"}', CallStatus.ERROR, "last line"),
        (b'{"type":"web","status":"error","exit_code":3}', CallStatus.ERROR, "exit code 3"),
        (b'{"type":"web","status":"limit","message":"time limit"}', CallStatus.LIMIT, "time limit"),
        (b'{"type":"web","status":"infra_fault","message":"gone"}', CallStatus.INFRA_FAULT, "gone"),
        (b'{"type":"web","status":"splendid"}', CallStatus.INFRA_FAULT, "web sent an unreadable record"),
        (b"\xff", CallStatus.INFRA_FAULT, "web sent an unreadable record"),
        (b"[]", CallStatus.INFRA_FAULT, "web sent an unreadable record"),
    ],
)
async def test_a_record_tells_its_status(bench: Bench, record: bytes, status: CallStatus, cause: str) -> None:
    calling = asyncio.create_task(bench.dispatcher.call(search("x"), timeout_s=5))
    lease = await bench.command()
    await bench.broker.send(REWARD_QUEUE, record, message_id=lease.message.message_id, lane=lease.message.lane)
    reply = await calling
    assert (reply.record, reply.status, reply.cause) == (record, status, cause)
    assert bench.dispatcher.counts["web"][status] == 1


async def test_a_failing_broker_is_an_infra_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise BrokerError("the disk is full")

    monkeypatch.setattr(bench.broker, "send", refuse)
    reply = await bench.dispatcher.call(search("x"), timeout_s=5)
    assert reply.status is CallStatus.INFRA_FAULT
    assert "the disk is full" in reply.cause


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        (BrokerError("the service is gone"), "web: broker failed: the service is gone"),
        (TimeoutError(), r"web: 0.05 s passed while waiting for the reply .*; the broker did not answer within 2 s .*"),
    ],
)
async def test_a_time_out_under_a_broker_that_is_gone_says_so(asked: Exception, cause: str) -> None:
    async def explain(_: str) -> str:
        raise asked

    broker = MemoryBroker()
    dispatcher = Dispatcher(broker, [WEB], explain=explain)
    reply = await dispatcher.call(search("x"), timeout_s=0.05)
    assert reply.status is CallStatus.INFRA_FAULT
    assert re.fullmatch(cause, reply.cause)
    await dispatcher.close()


async def test_each_sender_refuses_what_is_not_its_own() -> None:
    broker = MemoryBroker()
    bodies = [web_command_sender, code_command_sender, azure_command_sender]
    for make in bodies:
        sender = make(broker)
        verdict = await sender.send('{"type":"other"}')
        assert not isinstance(verdict, ToolCall)
        assert verdict.code is RejectionCode.FOREIGN_TYPE
        assert await broker.peek(sender.queue) == []
    raw = b'{ "type": "code", "code_command": "true" }'
    assert isinstance(await code_command_sender(broker).send(raw), ToolCall)
    (message,) = await broker.peek(command_queue("code"))
    assert message.body == raw
