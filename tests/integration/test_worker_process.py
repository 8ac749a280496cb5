"""`callwright worker` as people run it: log lines, drain, heartbeat, health and metrics, many on one queue."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from worker_processes import PATIENCE_S, QUEUES, worker

from callwright.envs.executors.azure import AzureExecutor
from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.presence import Presence, await_worker, presence_queue, present_workers
from callwright.envs.executors.worker_endpoint import WorkerEndpoint, WorkerMetrics
from callwright.serving.errors import UserError
from callwright.serving.protocol.tools import AZURE, CODE, WEB
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, Lease, Message, command_queue, dead_letters
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.sqlite import SqliteBroker

pytestmark = pytest.mark.integration

BARE = "executors.code.sandbox=none"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SqliteBroker]:
    made = SqliteBroker(tmp_path / "queues.db")
    yield made
    await made.close()


async def reply(broker: SqliteBroker, lane: str) -> Lease:
    lease = await broker.receive(REWARD_QUEUE, lane=lane, timeout_s=PATIENCE_S)
    assert lease is not None
    return lease


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_the_web_worker_logs_what_it_accepts_and_rejects(tmp_path: Path, broker: SqliteBroker) -> None:
    queue = command_queue("web")
    foreign = b'{"type":"code","code_command":"true"}'
    with worker(tmp_path, "web", "executors.health_port=0") as web:
        url = web.said(r"(http://127\.0\.0\.1:\d+)/healthz")[1]
        await broker.send(queue, b'{"type":"web","q":"code","k":1}', message_id="good", lane="a")
        assert json.loads((await reply(broker, "a")).message.body)["status"] == "ok"
        await broker.send(queue, foreign, message_id="bad", lane="b")
        rejected = (await reply(broker, "b")).message
        assert (rejected.message_id, json.loads(rejected.body)["code"]) == ("bad", "foreign_type")
        web.said("request accepted by web\n")
        web.said("request rejected by web: foreign_type")
        (dead,) = await settled(broker, dead_letters(queue), 1)
        assert (dead.body, dead.code) == (foreign, "foreign_type")

        code, body = get(f"{url}/healthz")
        assert (code, json.loads(body)["state"]) == (200, "running")
        _, metrics = get(f"{url}/metrics")
        assert 'callwright_worker_calls_total{status="ok",tool="web"} 1.0' in metrics
        assert 'callwright_worker_calls_total{status="rejected",tool="web"} 1.0' in metrics
        assert get(f"{url}/else")[0] == 404
        web.stop()
        assert web.ended() == 0


async def test_the_endpoint_answers_while_the_event_loop_stands_still() -> None:
    fine = True
    idle = CommandWorker(MemoryBroker(), AzureExecutor(), AZURE)
    metrics = WorkerMetrics(idle, lambda: 12.5)
    with WorkerEndpoint(0, lambda: (fine, {"state": "running"}), metrics) as endpoint:
        assert get(f"{endpoint.url}/healthz") == (200, '{"state": "running"}')  # asked from the loop's own thread
        fine = False
        assert get(f"{endpoint.url}/healthz")[0] == 503
        assert 'callwright_worker_heartbeat_age_seconds{tool="azure"} 12.5' in get(f"{endpoint.url}/metrics")[1]
        port = int(endpoint.url.rpartition(":")[2])
        with pytest.raises(UserError, match=f"executors.health_port: cannot listen on 127.0.0.1 port {port}"):
            WorkerEndpoint(port, lambda: (fine, {}), metrics)


async def settled(broker: SqliteBroker, queue: str, count: int) -> list[Message]:
    """What is in ``queue`` once it holds so many messages: a reply is out a moment before its command is settled."""
    async with asyncio.timeout(PATIENCE_S):
        while len(found := await broker.peek(queue)) != count:
            await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopped_worker_finishes_what_it_has_and_takes_no_more(
    tmp_path: Path, broker: SqliteBroker, number: int
) -> None:
    queue = command_queue("code")
    with worker(tmp_path, "code", BARE) as code:
        assert await await_worker(broker, "code", timeout_s=PATIENCE_S)
        gate = tmp_path / "gate"
        command = f"until test -e {gate}; do sleep 0.05; done; echo done"
        await broker.send(queue, json.dumps({"type": "code", "code_command": command}).encode(), lane="a")
        code.said("request accepted by code")
        code.stop(number)
        code.said("drains: 1 calls in hand")
        await broker.send(queue, b'{"type":"code","code_command":"true"}', lane="b")
        gate.touch()
        assert code.ended() == 0
    assert json.loads((await reply(broker, "a")).message.body)["stdout"] == "done\n"
    assert [(message.lane, message.delivery_count) for message in await broker.peek(queue)] == [("b", 0)]
    assert await present_workers(broker, "code") == 0


async def test_told_twice_it_gives_back_what_it_has(tmp_path: Path, broker: SqliteBroker) -> None:
    queue = command_queue("code")
    with worker(tmp_path, "code", BARE, "executors.code.timeout_s=600") as code:
        await broker.send(queue, b'{"type":"code","code_command":"sleep 600"}', lane="a")
        code.said("request accepted by code")
        code.stop(signal.SIGINT)
        code.said("drains")
        code.stop(signal.SIGINT)
        assert code.ended() == 130
        assert "Traceback" not in code.log.read_text()
    lease = await broker.receive(queue, timeout_s=1)
    assert lease is not None
    assert lease.message.delivery_count == 2


async def test_a_stateful_tool_has_one_worker(tmp_path: Path, broker: SqliteBroker) -> None:
    words = ("worker", "azure", f"executors.azure.folder={tmp_path}", *QUEUES)
    await broker.start(presence_queue("azure"))
    first = Presence(broker, "azure", lease_s=2 * PATIENCE_S)
    await first.announce()
    command = [sys.executable, "-m", "callwright", *words]
    second = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert second.returncode == 1, second.stderr
    assert "a worker serves commandqueue-azure already" in second.stderr
    assert "Traceback" not in second.stderr
    await first.leave()
    with worker(tmp_path, *words[1:3]) as heir:
        heir.stop()
        assert heir.ended() == 0


@pytest.mark.slow
async def test_a_lease_is_renewed_for_as_long_as_a_call_runs(tmp_path: Path, broker: SqliteBroker) -> None:
    dispatcher = Dispatcher(broker, [CODE])
    words = ("code", BARE, "executors.lease_s=1")
    with worker(tmp_path, *words), worker(tmp_path, *words, name="second"):
        count = tmp_path / "count"
        call = ToolCall("code", {"code_command": f"echo x >> {count}; sleep 3"})
        assert (await dispatcher.call(call, timeout_s=PATIENCE_S)).status is CallStatus.OK
        assert count.read_text() == "x\n"
    await dispatcher.close()


async def test_a_killed_workers_calls_are_answered_by_another(tmp_path: Path, broker: SqliteBroker) -> None:
    dispatcher = Dispatcher(broker, [WEB, CODE], lanes=4)
    lease = "executors.lease_s=1.5"
    with worker(tmp_path, "code", BARE, lease, name="doomed") as doomed:
        gate = tmp_path / "gate"
        command = f"until test -e {gate}; do sleep 0.05; done; echo done"
        calls = [
            asyncio.create_task(
                dispatcher.call(ToolCall("code", {"code_command": f": {number}; {command}"}), timeout_s=PATIENCE_S)
            )
            for number in range(4)
        ]
        await asyncio.to_thread(doomed.said, "request accepted by code")
        doomed.stop(signal.SIGKILL)
        doomed.ended()
        gate.touch()
        with worker(tmp_path, "code", BARE, lease, name="heir") as heir:
            replies = await asyncio.gather(*calls)
            assert [(said.status, json.loads(said.record)["stdout"]) for said in replies] == [
                (CallStatus.OK, "done\n")
            ] * 4
            heir.stop()
            assert heir.ended() == 0
    assert await broker.peek(command_queue("code")) == await broker.peek(REWARD_QUEUE) == []
    assert dispatcher.retired == 0
    await dispatcher.close()
