"""Workers killed at each point of a call: one result reaches the caller, and a stateful call never runs twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from doomed_worker import POINTS

from callwright.serving.protocol.tools import AZURE, WEB
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import REWARD_QUEUE, command_queue
from callwright.serving.queues.dispatcher import CallStatus, Dispatcher
from callwright.serving.queues.sqlite import SqliteBroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("doomed_worker.py")
PATIENCE_S = 60.0

CALLS = {
    "web": lambda text: ToolCall("web", {"q": text, "k": 1}),
    "azure": lambda text: ToolCall("azure", {"azure_command": text}),
}
TOOLS = {"web": WEB, "azure": AZURE}

# Point of the kill -> how often the call has run in the end, and how it ended.
STATELESS = {
    "before execute": (1, CallStatus.OK),
    "after execute": (2, CallStatus.OK),
    "after journal": (1, CallStatus.OK),
    "after publish": (1, CallStatus.OK),
}
STATEFUL = {
    "before execute": (0, CallStatus.INFRA_FAULT),
    "after execute": (1, CallStatus.INFRA_FAULT),
    "after journal": (1, CallStatus.OK),
    "after publish": (1, CallStatus.OK),
}


@asynccontextmanager
async def worker(folder: Path, tool: str, point: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(folder), tool, point)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ended(process: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(process.wait(), PATIENCE_S)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("tool", ["web", "azure"])
async def test_one_result_wherever_the_worker_is_killed(tool: str, point: str, tmp_path: Path) -> None:
    broker = SqliteBroker(tmp_path / "queues.db")
    dispatcher = Dispatcher(broker, [TOOLS[tool]], lanes=1)
    calling = asyncio.create_task(dispatcher.call(CALLS[tool]("first"), timeout_s=PATIENCE_S))
    async with worker(tmp_path, tool, point) as doomed:
        assert await ended(doomed) == -signal.SIGKILL
    async with worker(tmp_path, tool) as heir:
        reply = await calling
        following = await dispatcher.call(CALLS[tool]("second"), timeout_s=PATIENCE_S)
        heir.terminate()
        assert await ended(heir) == 0
    times, status = (STATEFUL if TOOLS[tool].stateful else STATELESS)[point]
    ran = (tmp_path / "ran").read_text().splitlines()
    assert ran == ["first"] * times + ["second"]
    assert reply.status is status
    if status is CallStatus.OK:
        said = json.loads(reply.record)
        assert said["asked"] == "first"
        # The journal's record is the dead worker's own, byte for byte; another run would be the heir's.
        assert said["by"] == (doomed.pid if point in ("after journal", "after publish") else heir.pid)
    else:
        assert "not run again" in reply.cause
    # The lane goes on: a second copy of the first reply was dropped, not taken for the reply to the second call.
    assert json.loads(following.record)["asked"] == "second"
    assert (dispatcher.duplicates, dispatcher.retired) == (int(point == "after publish"), 0)
    assert await broker.peek(command_queue(tool)) == await broker.peek(REWARD_QUEUE) == []
    await dispatcher.close()
    await broker.close()
