"""A worker process for tests, which kills itself (SIGKILL) at a named point of its first call.

    python doomed_worker.py FOLDER TOOL POINT

Everything is real: the queue file, the journal, the worker loop. Each run of the executor leaves a line in FOLDER/ran.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.executor import Record, record_of
from callwright.envs.executors.journal import Journal
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import Message
from callwright.serving.queues.reply import CallStatus
from callwright.serving.queues.reward_queue import RewardQueue
from callwright.serving.queues.sqlite import SqliteBroker

LEASE_S = 1.5
POINTS = ("before execute", "after execute", "after journal", "after publish")


class Doom:
    """Kills the process at ``point``; at none where it is ''."""

    def __init__(self, point: str) -> None:
        self._point = point

    def at(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


class Witnessed:
    """An executor whose runs can be counted afterwards."""

    def __init__(self, tool: str, ran: Path, doom: Doom) -> None:
        self.name = f"{tool}/witnessed"
        self._ran = ran
        self._doom = doom

    async def start(self) -> None: ...

    async def run(self, call: ToolCall) -> Record:
        self._doom.at("before execute")
        with self._ran.open("a") as file:
            file.write(f"{next(iter(call.arguments.values()))}\n")
        self._doom.at("after execute")
        return record_of(call, CallStatus.OK, asked=next(iter(call.arguments.values())), by=os.getpid())

    async def close(self) -> None: ...


class DoomedJournal(Journal):
    def __init__(self, path: Path, doom: Doom) -> None:
        super().__init__(path)
        self._doom = doom

    async def write(self, queue: str, command: Message, record: bytes) -> None:
        await super().write(queue, command, record)
        self._doom.at("after journal")


class DoomedRewards(RewardQueue):
    def __init__(self, broker: SqliteBroker, doom: Doom) -> None:
        super().__init__(broker)
        self._doom = doom

    async def publish(self, record: bytes, *, lane: str, message_id: str) -> None:
        await super().publish(record, lane=lane, message_id=message_id)
        self._doom.at("after publish")


async def main(folder: Path, tool_name: str, point: str) -> None:
    doom = Doom(point)
    broker = SqliteBroker(folder / "queues.db")
    worker = CommandWorker(
        broker,
        Witnessed(tool_name, folder / "ran", doom),
        next(tool for tool in DEFAULT_TOOLS if tool.name == tool_name),
        lease_s=LEASE_S,
        rewards=DoomedRewards(broker, doom),
        journal=DoomedJournal(folder / "journal.db", doom),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
    await worker.run()
    await broker.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
