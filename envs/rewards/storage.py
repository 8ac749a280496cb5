"""Tasks about a storage account: filled before the rollout, compared as a whole after it, by the record alone.

Invariant: the account that is read is the one that the rollout's own calls went to, because all of them are made in one
episode; a call of ours that does not get through is a ``GradingFault``, never a verdict.
"""

from __future__ import annotations

import json
from typing import Any

from callwright.envs.executors.azure.housekeeping import fill_call, read_call
from callwright.envs.rewards.calls import CallTool
from callwright.envs.rewards.reward import GradingFault
from callwright.envs.tasks.storage import Storage, StorageGoal
from callwright.envs.tasks.task import Task
from callwright.serving.protocol.tools import AZURE
from callwright.serving.queues.reply import CallStatus, Reply


async def set_up(task: Task, call: CallTool) -> None:
    """Put what the task begins with into the episode's account. Raises GradingFault."""
    if task.storage is not None:
        _ran(await call(fill_call(task.storage.before.seed())), "the account could not be filled")


async def reached(goal: StorageGoal, call: CallTool) -> bool:
    """Whether the episode's account holds what it should, all of it and nothing else. Raises GradingFault."""
    said = _ran(await call(read_call()), "the account could not be read")
    try:
        held = json.loads(said["stdout"])
    except (ValueError, KeyError) as error:
        raise GradingFault("the record of what the account holds is not readable") from error
    return same(held, goal.after)


def same(held: Any, wanted: Storage) -> bool:
    """Whether what an account is said to hold is what is wanted."""
    return bool(held == wanted.snapshot())


def _ran(reply: Reply, otherwise: str) -> dict[str, Any]:
    if reply.status is not CallStatus.OK:
        raise GradingFault(f"{otherwise}: {reply.status}: {reply.cause}")
    said = json.loads(reply.record)
    if said.get("type") != AZURE.name:
        raise GradingFault(f"{otherwise}: the record is not from the azure executor")
    return dict(said)
