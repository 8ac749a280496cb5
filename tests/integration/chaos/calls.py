"""A worker that is killed at one step of a call, once the run that it serves has begun to train."""

from __future__ import annotations

import asyncio
import os
import signal
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callwright.envs.executors.command_queue import CommandWorker
from callwright.envs.executors.executor import Record
from callwright.envs.executors.journal import Journal
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.broker import Lease
from callwright.serving.queues.reward_queue import RewardQueue
from callwright.serving.queues.sqlite import SqliteBroker

STEPS = ("received", "executing", "executed", "journalled", "published", "settled")

_first = ContextVar("first", default=False)  # whether the command in hand comes for the first time


@dataclass(frozen=True, slots=True)
class AtCall:
    """SIGKILL at ``step`` of the first command that comes after the file ``begun`` is there, and never came before: a
    call that two workers die of would be another matter."""

    step: str
    begun: Path

    def reached(self, step: str) -> None:
        if step == self.step and _first.get() and self.begun.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    def arm(self) -> None:
        handle, said = CommandWorker._handle, CommandWorker._said
        write, publish, complete = Journal.write, RewardQueue.publish, SqliteBroker.complete

        async def _handle(worker: CommandWorker, lease: Lease) -> None:
            _first.set(lease.message.delivery_count == 1)
            self.reached("received")
            await handle(worker, lease)

        async def _said(worker: CommandWorker, call: ToolCall, lane: str) -> Record:
            running = asyncio.ensure_future(said(worker, call, lane))
            await asyncio.sleep(0)  # it has begun
            self.reached("executing")
            record = await running
            self.reached("executed")
            return record

        async def _write(journal: Journal, *row: Any) -> None:
            await write(journal, *row)
            self.reached("journalled")

        async def _publish(rewards: RewardQueue, record: bytes, **where: str) -> None:
            await publish(rewards, record, **where)
            self.reached("published")

        async def _complete(broker: SqliteBroker, lease: Lease) -> None:
            await complete(broker, lease)
            self.reached("settled")

        for owner, name, patch in (
            (CommandWorker, "_handle", _handle),
            (CommandWorker, "_said", _said),
            (Journal, "write", _write),
            (RewardQueue, "publish", _publish),
            (SqliteBroker, "complete", _complete),
        ):
            setattr(owner, name, patch)
