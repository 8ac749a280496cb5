"""Work that runs to its end, whatever becomes of the task that asked for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """The tasks of one owner. Invariant: a task that is begun is held until it ends, and waited for at the close."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    async def finish(self, timeout_s: float) -> None:
        """Wait for what was begun, and for what that begins; cancel what is left when the time is over."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._tasks and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        for task in self._tasks:
            task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("background work failed: %r", error)  # whoever still waits for the task is told as well
