"""An event loop in a thread of its own, for callers that are not asynchronous (TRL's trainer is one) and for work that
must stay off theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Executors and rollouts live on one for the whole run, an engine that speaks HTTP on another."""

    def __init__(self, name: str = "callwright-loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start one and do not wait; cancelling the future cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return the result. An interrupt cancels the coroutine before it is raised here."""
        result: Future[T] = Future()
        tasks: list[asyncio.Task[None]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(_settle(coroutine, result)))

        def cancel() -> None:
            for task in tasks:
                task.cancel()
            if not tasks:
                coroutine.close()

        try:
            # In here an interrupt may come when the coroutine runs already, and asyncio's own future for it is lost.
            self._loop.call_soon_threadsafe(start)
            return result.result()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            raise

    def close(self) -> None:
        """Stop the loop; what still runs on it is cancelled."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()


async def _settle(coroutine: Coroutine[Any, Any, T], result: Future[T]) -> None:
    try:
        result.set_result(await coroutine)
    except asyncio.CancelledError:
        result.cancel()
        raise
    except BaseException as error:
        result.set_exception(error)


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
