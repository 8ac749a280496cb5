"""Executors behind real queues: records travel byte for byte, and every failure is answered and has an owner."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.corpus import Corpus, Document
from callwright.envs.executors.executor import Executor, ExecutorUnavailable, Record
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import AzureSettings, CodeSettings, ExecutorSettings
from callwright.serving.errors import UserError
from callwright.serving.protocol.tools import AZURE, WEB
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, Lease, Message, command_queue, dead_letters
from callwright.serving.queues.dispatcher import CallStatus
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.reward_queue import RewardQueue

pytestmark = pytest.mark.integration

DOCUMENTS = [
    ("Oslo", "Oslo is the capital of Norway."),
    ("Norway", "A country in the north. Its capital is Oslo.", "https://example.org/norway"),
    ("Bergen", "Bergen is a city in Norway. It rains in Bergen."),
    ("Twin", "the same text"),
    ("Twin", "the same text"),
]


def search(q: str, k: int = 3) -> ToolCall:
    return ToolCall("web", {"q": q, "k": k})


class Scripted:
    """An executor that does what a test says."""

    name = "web/scripted"

    def __init__(self, *, record: Any = None, error: Exception | None = None, seconds: float = 0.0) -> None:
        self.record = record
        self.error = error
        self.seconds = seconds
        self.ran: list[ToolCall] = []
        self.closed = False

    async def start(self) -> None:
        if isinstance(self.error, ExecutorUnavailable):
            raise self.error

    async def run(self, call: ToolCall) -> Record:
        self.ran.append(call)
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        answer: Record = self.record or {"type": call.name, "status": "ok"}
        return answer

    async def close(self) -> None:
        self.closed = True


class Station:
    """One worker on a broker, with the test as the sender."""

    def __init__(self, executor: Executor, **options: Any) -> None:
        self.broker = MemoryBroker()
        tool = options.pop("tool", WEB)
        self.queue = command_queue(tool.name)
        self.worker = CommandWorker(self.broker, executor, tool, **options)
        self.task = asyncio.create_task(self.worker.run())

    async def ask(self, body: bytes, lane: str = "a") -> Message:
        await self.broker.send(self.queue, body, message_id=f"id-{lane}", lane=lane)
        return (await self.reply(lane)).message

    async def reply(self, lane: str) -> Lease:
        lease = await RewardQueue(self.broker).read(lane=lane, timeout_s=10)
        assert lease is not None
        return lease

    async def stop(self) -> None:
        self.worker.drain()
        await self.task


BODY = b'{"type":"web","q":"x","k":1}'


@pytest.fixture
async def executors() -> AsyncIterator[Executors]:
    nowhere = AzureSettings(folder=Path("no-such-folder"))
    per_tool = {"code": CodeSettings(workers=1), "azure": nowhere}
    settings = ExecutorSettings(tools=("web", "code", "azure"), per_tool=per_tool)
    try:
        async with Executors(settings, documents=DOCUMENTS) as made:
            yield made
    except ExecutorUnavailable as error:
        pytest.skip(f"no sandbox here: {error}")


# The worker


async def test_the_reward_queue_has_the_executors_output_byte_for_byte() -> None:
    said = {"type": "web", "status": "ok", "x": 'é "</tool_result>" \u2028 \\ \x00', "n": [1.5, None, True]}
    station = Station(Scripted(record=said))
    message = await station.ask(BODY)
    assert message.body == json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    assert (message.message_id, message.lane) == ("id-a", "a")
    await station.stop()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"type":"code","code_command":"true"}', "foreign_type"),
        (b'{"type":"web","q":"x"}', "missing_key"),
        (b"\xff\xfe", "malformed_json"),
        (b"{'type':'web'}", "malformed_json"),
    ],
)
async def test_a_bad_body_is_a_dead_letter_and_is_answered(
    body: bytes, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    executor = Scripted()
    station = Station(executor)
    record = json.loads((await station.ask(body)).body)
    await station.stop()
    assert (record["type"], record["status"], record["code"]) == ("web", "rejected", code)
    (dead,) = await station.broker.peek(dead_letters(station.queue))
    assert (dead.body, dead.code) == (body, code)
    assert executor.ran == []
    assert "request rejected by web" in caplog.text


async def test_an_accepted_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    station = Station(Scripted())
    await station.ask(BODY)
    await station.stop()
    assert "request accepted by web" in caplog.text


@pytest.mark.parametrize(
    ("executor", "why"),
    [
        (Scripted(error=ConnectionError("nobody there")), "ConnectionError: nobody there"),
        (Scripted(record={"type": "web", "status": "ok", "x": object()}), "TypeError"),
        (Scripted(record={"type": "web", "status": "ok", "x": float("nan")}), "ValueError"),
        (Scripted(seconds=60), "no answer within 0.05 s"),
    ],
)
async def test_what_an_executor_does_wrong_is_an_infra_fault_that_names_it(executor: Scripted, why: str) -> None:
    station = Station(executor, deadline_s=0.05)
    record = json.loads((await station.ask(BODY)).body)
    assert (record["status"], record["executor"]) == ("infra_fault", "web/scripted")
    assert why in record["message"]
    assert await station.broker.peek(station.queue) == []
    await station.stop()


async def test_calls_run_at_once_up_to_the_limit() -> None:
    executor = Scripted(seconds=0.05)
    station = Station(executor, concurrency=3)
    for number in range(6):
        await station.broker.send(station.queue, BODY, lane=str(number))
    await station.reply("0")
    assert 3 <= len(executor.ran) <= 6
    for number in range(1, 6):
        await station.reply(str(number))
    await station.stop()
    assert len(executor.ran) == 6


async def test_a_lease_is_renewed_while_a_call_runs() -> None:
    executor = Scripted(seconds=2.5)
    station = Station(executor, lease_s=1.0)  # a loaded machine may stand still for part of it
    await station.ask(BODY)
    await station.stop()
    assert len(executor.ran) == 1


async def test_a_worker_whose_lease_ran_out_publishes_nothing() -> None:
    class Frozen(Scripted):
        async def run(self, call: ToolCall) -> Record:
            if not self.ran:
                time.sleep(0.5)  # the event loop stands still, and no lease is renewed
            return {**await super().run(call), "run": len(self.ran)}

    executor = Frozen()
    station = Station(executor, lease_s=0.1)
    message = await station.ask(BODY)
    await station.stop()
    assert json.loads(message.body)["run"] == len(executor.ran) > 1
    assert station.worker.counts.leases_lost == len(executor.ran) - 1
    assert await station.broker.peek(REWARD_QUEUE) == [message]


async def test_a_drain_ends_the_wait_and_takes_no_more() -> None:
    executor = Scripted(seconds=0.2)
    station = Station(executor, concurrency=1)
    await station.broker.send(station.queue, BODY, lane="a")
    async with asyncio.timeout(5):
        while not executor.ran:
            await asyncio.sleep(0.001)
    await station.broker.send(station.queue, BODY, lane="b")
    async with asyncio.timeout(5):
        await station.stop()
    assert len(executor.ran) == 1
    assert [message.lane for message in await station.broker.peek(REWARD_QUEUE)] == ["a"]
    assert [message.delivery_count for message in await station.broker.peek(station.queue)] == [0]


async def test_a_stateful_call_is_not_run_twice() -> None:
    executor = Scripted()
    broker_body = b'{"type":"azure","azure_command":"az group list"}'
    station = Station(executor, tool=AZURE)
    await station.stop()  # no worker: the first delivery is lost by hand
    await station.broker.send(station.queue, broker_body, lane="a")
    lost = await station.broker.receive(station.queue, timeout_s=1)
    assert lost is not None
    await station.broker.abandon(lost)
    second = CommandWorker(station.broker, executor, AZURE)
    task = asyncio.create_task(second.run())
    record = json.loads((await station.reply("a")).message.body)
    assert record["status"] == "infra_fault"
    assert executor.ran == []
    second.drain()
    await task


async def test_a_cancelled_worker_gives_its_commands_back() -> None:
    executor = Scripted(seconds=60)
    station = Station(executor)
    await station.broker.send(station.queue, BODY, lane="a")
    async with asyncio.timeout(5):
        while not executor.ran:
            await asyncio.sleep(0.001)
    station.task.cancel()
    await asyncio.gather(station.task, return_exceptions=True)
    lease = await station.broker.receive(station.queue, timeout_s=1)
    assert lease is not None
    assert lease.message.delivery_count == 2


# The service


async def test_every_tool_answers_through_the_queues(executors: Executors) -> None:
    web = await executors.call(search("norway"))
    assert json.loads(web.record)["results"][0]["title"] == "Norway"
    code = await executors.call(ToolCall("code", {"code_command": "python3 -c 'print(6*7)'; exit 3"}))
    assert json.loads(code.record) == {"type": "code", "status": "error", "exit_code": 3, "stdout": "42\n"}
    assert (code.status, code.cause) == (CallStatus.ERROR, "exit code 3")
    azure = await executors.call(ToolCall("azure", {"azure_command": "az group list"}))
    assert (azure.status, azure.executor) == (CallStatus.INFRA_FAULT, "azure/none")
    assert azure.cause == "azure is not configured here; run: make azure"
    assert executors.counts["azure"] == {"ok": 0, "error": 0, "limit": 0, "rejected": 0, "infra_fault": 1}
    health = {entry.tool: entry for entry in executors.health()}
    assert all(entry.alive for entry in health.values())
    assert health["code"].counts["error"] == 1
    assert health["web"].executor == "web/corpus"


@pytest.mark.parametrize(
    ("command", "status", "cause"),
    [
        ("python3 -c 'bytearray(10**10)'", CallStatus.LIMIT, "memory limit"),
        ("yes", CallStatus.LIMIT, "killed: output limit of 1048576 bytes"),
        ("python3 -c 'raise MemoryError' || true", CallStatus.OK, ""),
        ("python3 -c '1/0'", CallStatus.ERROR, "ZeroDivisionError: division by zero"),
        ("false", CallStatus.ERROR, "exit code 1"),
        ("printf '\\377'", CallStatus.OK, ""),
    ],
)
async def test_code_tells_whose_fault_it_was(
    executors: Executors, command: str, status: CallStatus, cause: str
) -> None:
    reply = await executors.call(ToolCall("code", {"code_command": command}))
    assert (reply.status, reply.cause) == (status, cause)


async def test_an_executor_that_always_fails_is_named() -> None:
    failing = Scripted(error=RuntimeError("the index is gone"))
    async with Executors(ExecutorSettings(tools=("web",)), executors={"web": failing}) as executors:
        replies = await asyncio.gather(*(executors.call(search(str(number))) for number in range(20)))
    assert {reply.status for reply in replies} == {CallStatus.INFRA_FAULT}
    assert {reply.executor for reply in replies} == {"web/scripted"}
    assert {reply.cause for reply in replies} == {"executor web/scripted: RuntimeError: the index is gone"}
    assert executors.counts["web"]["infra_fault"] == 20
    assert failing.closed


async def test_a_failed_start_closes_what_had_started() -> None:
    first, second = Scripted(), Scripted(error=ExecutorUnavailable("not here; run: apt-get install it"))
    service = Executors(ExecutorSettings(tools=("web", "code")), executors={"web": first, "code": second})
    with pytest.raises(ExecutorUnavailable, match="apt-get install it"):
        await service.start()
    assert first.closed


@pytest.mark.parametrize("settings", [ExecutorSettings(tools=("web",)), ExecutorSettings(tools=("telepathy",))])
async def test_settings_that_cannot_work_are_the_users(settings: ExecutorSettings) -> None:
    with pytest.raises(UserError):
        Executors(settings)


async def test_closing_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with Executors(ExecutorSettings(tools=("web",)), documents=DOCUMENTS) as executors:
        assert (await executors.dispatcher.call(search("oslo"), timeout_s=0)).status is CallStatus.INFRA_FAULT
    assert asyncio.all_tasks() == before


# The corpus


def titles(corpus: Corpus, query: str, k: int = 5) -> list[str]:
    return [document.title for document in corpus.search(query, k)]


def test_the_title_weighs_more_than_the_text() -> None:
    corpus = Corpus.build([("Fjord", "Water, and Norway, Norway, Norway."), ("Norway", "A country with a fjord.")])
    assert titles(corpus, "norway") == ["Norway", "Fjord"]
    assert titles(corpus, "norways countries") == ["Norway"]


def test_all_the_words_before_some_of_them() -> None:
    corpus = Corpus.build(DOCUMENTS)
    assert set(titles(corpus, "capital norway")) == {"Oslo", "Norway"}
    assert titles(corpus, "bergen zzz") == ["Bergen"]
    assert titles(corpus, "zzz") == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "'",
        "oslo AND (",
        "NEAR(oslo, 3)",
        "title:oslo",
        "oslo*",
        "-oslo",
        "^oslo",
        "{title} : oslo",
        "oslo OR",
        "zz\0yy",
    ],
)
def test_a_query_is_words_and_never_syntax(query: str) -> None:
    corpus = Corpus.build(DOCUMENTS)
    assert titles(corpus, query)[:1] == (["Oslo"] if "oslo" in query else [])


def test_ties_keep_the_order_of_insertion_and_content_is_bounded() -> None:
    corpus = Corpus.build([*DOCUMENTS, Document("Long", "word " * 5000)])
    assert titles(corpus, "twin same") == ["Twin", "Twin"]
    assert len(corpus.search("long", 1)[0].content) == 3000


def test_a_collection_in_a_file_answers_like_one_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "corpus.db"
    with pytest.raises(FileNotFoundError):
        Corpus.open(path)
    built = Corpus.build(DOCUMENTS, path)
    built.close()
    opened = Corpus.open(path)
    assert len(opened) == len(DOCUMENTS)
    assert opened.search("norway", 5) == Corpus.build(DOCUMENTS).search("norway", 5)
    assert [entry.name for entry in path.parent.iterdir()] == ["corpus.db"]
    Corpus.build(DOCUMENTS[:1], path).close()
    assert len(Corpus.open(path)) == 1


async def test_a_search_record(executors: Executors) -> None:
    said = json.loads((await executors.call(search("norway", 1))).record)
    url = "https://example.org/norway"
    assert said == {
        "type": "web",
        "status": "ok",
        "results": [{"title": "Norway", "content": DOCUMENTS[1][1], "url": url}],
    }
    said = json.loads((await executors.call(search("zzz"))).record)
    assert said == {"type": "web", "status": "ok", "results": [], "message": "no results"}
    assert await executors.broker.peek(REWARD_QUEUE) == []
