"""The executors over each broker that a config can choose: every call gets its own answer, in one process or in two."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from buses import KINDS, Bus, namespace

from callwright.envs.executors.executor import Record, record_of
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.serving.errors import UserError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.reply import CallStatus

pytestmark = pytest.mark.integration


class Echo:
    """Answers with the query; the later ones sooner, so that order alone cannot pair them."""

    name = "echo"

    async def start(self) -> None: ...

    async def run(self, call: ToolCall) -> Record:
        number = int(call.arguments["q"])
        await asyncio.sleep(0.02 * (8 - number % 8))
        return record_of(call, CallStatus.OK, said=number)

    async def close(self) -> None: ...


@pytest.fixture(params=KINDS)
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ExecutorSettings]:
    with namespace(monkeypatch) if request.param == "servicebus" else nullcontext(Bus("UNUSED", "")) as bus:
        yield ExecutorSettings(
            tools=("web",),
            lanes=6,
            broker=request.param,
            queues=tmp_path / "made" / "queues.db",
            journal=tmp_path / "journal.db",
            servicebus_env=bus.variable,
            servicebus_prefix=bus.prefix,
        )


async def test_every_call_gets_its_own_answer(settings: ExecutorSettings) -> None:
    async with (
        Executors(settings, executors={"web": Echo()}) as one,
        Executors(settings, executors={"web": Echo()}) as two,
    ):
        calls = [ToolCall("web", {"q": str(number), "k": 1}) for number in range(16)]
        ends = (one, two)
        replies = await asyncio.gather(*(ends[number % 2].call(call) for number, call in enumerate(calls)))
    assert [reply.status for reply in replies] == [CallStatus.OK] * 16
    assert [json.loads(reply.record)["said"] for reply in replies] == list(range(16))
    assert one.dispatcher.retired == two.dispatcher.retired == 0


async def test_a_broker_that_cannot_be_reached_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "queues.db").mkdir()
    settings = ExecutorSettings(
        tools=("web",), broker="sqlite", queues=tmp_path / "queues.db", journal=tmp_path / "j.db"
    )
    service = Executors(settings, executors={"web": Echo()})
    with pytest.raises(UserError, match=r"queues\.db"):
        await service.start()
