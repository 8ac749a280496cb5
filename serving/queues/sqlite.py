"""The broker of several processes on one machine: a SQLite file that each of them opens.

Invariants: those of the contract. SQLite runs in a thread of its own, one job after another, never on the event loop.
A receiver that waits is woken at once by its own process; for the others' messages one task for all receivers looks at
the file, first every ``POLL_FIRST_S``, then, while nothing happens, ever more rarely down to every ``POLL_LAST_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from callwright.serving.errors import UserError
from callwright.serving.queues.broker import (
    MAX_DELIVERIES,
    BrokerClosed,
    BrokerError,
    Lease,
    Message,
    QueueStats,
    dead_letters,
    refuse_second_death,
)
from callwright.serving.queues.sqlite_file import QueueFile
from callwright.serving.queues.waiters import Waiters

log = logging.getLogger(__name__)

POLL_FIRST_S = 0.001
POLL_LAST_S = 0.02
_NO_PLACE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB)
POLL_GROWTH = 1.25  # a wait of some length is noticed about a fifth of that length late

T = TypeVar("T")


class SqliteBroker:
    """See ``Broker``. The file, and the folders above it, are made where they are missing."""

    def __init__(self, path: Path | str, *, max_deliveries: int = MAX_DELIVERIES) -> None:
        self._path = Path(path)
        self._max_deliveries = max_deliveries
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queue file")
        self._file: QueueFile | None = None  # of the thread alone
        self._lost = 0  # how many files were moved away
        self._waiters = Waiters()
        self._poll_s = POLL_FIRST_S
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self, *queues: str) -> None:
        """Open the file. Raises UserError where none can be at that place."""
        try:
            await self._do(lambda file: None)
        except BrokerError as error:
            why = error.__cause__
            if isinstance(why, OSError) or getattr(why, "sqlite_errorcode", None) in _NO_PLACE:
                raise UserError(f"executors.queues={self._path}: {why}; name a file of its own") from None
            raise

    async def send(self, queue: str, body: bytes, *, message_id: str = "", lane: str = "") -> None:
        message = Message(body, message_id, lane, sent_at=time.time())
        await self._do(lambda file: file.put(queue, message))
        self._waiters.wake(queue, lane)

    async def receive(
        self, queue: str, *, timeout_s: float, lease_s: float = 30.0, lane: str | None = None
    ) -> Lease | None:
        loop = asyncio.get_running_loop()
        deadline, lost = loop.time() + timeout_s, self._lost
        with self._waiters.waiting(queue, lane) as ready:
            while True:
                if self._lost != lost:  # what it waits for is in the file that is gone
                    raise self._moved()
                ready.clear()
                lease = await self._take(queue, lane, lease_s)
                if lease is not None or loop.time() >= deadline:
                    return lease
                self._poll()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await ready.wait()

    async def renew(self, lease: Lease, lease_s: float = 30.0) -> None:
        await self._do(lambda file: file.renew(lease, lease_s))

    async def complete(self, lease: Lease) -> None:
        await self._do(lambda file: file.complete(lease))
        self._waiters.wake(lease.queue, lease.message.lane)

    async def abandon(self, lease: Lease) -> None:
        await self._do(lambda file: file.abandon(lease))
        self._settled(lease)

    async def dead_letter(self, lease: Lease, *, code: str, reason: str) -> None:
        refuse_second_death(lease)
        await self._do(lambda file: file.dead_letter(lease, code, reason))
        self._settled(lease)

    async def peek(self, queue: str, limit: int = 100) -> list[Message]:
        return await self._do(lambda file: file.peek(queue, limit))

    async def stats(self, queue: str) -> QueueStats:
        return await self._do(lambda file: file.stats(queue))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._waiters.wake_all()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait([self._poller])
        await asyncio.wrap_future(self._thread.submit(self._close_file))
        self._thread.shutdown(wait=False)

    def _settled(self, lease: Lease) -> None:
        """The lane has another head; the message may be a dead letter now."""
        self._waiters.wake(lease.queue, lease.message.lane)
        self._waiters.wake(dead_letters(lease.queue), lease.message.lane)

    async def _take(self, queue: str, lane: str | None, lease_s: float) -> Lease | None:
        taking = self._submit(lambda file: file.take(queue, lane, lease_s))
        try:
            return await asyncio.wrap_future(taking)
        except asyncio.CancelledError:
            if not self._closed:  # the thread does one job after another, so this one finds the lease if there is one
                self._thread.submit(self._untake, taking)
            raise

    def _untake(self, taking: Future[Lease | None]) -> None:
        if taking.cancelled() or taking.exception() is not None or self._file is None:
            return
        lease = taking.result()
        if lease is not None:
            self._file.untake(lease)

    async def _do(self, work: Callable[[QueueFile], T]) -> T:
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Callable[[QueueFile], T]) -> Future[T]:
        if self._closed:
            raise BrokerClosed(f"the queue file {self._path} is closed")
        return self._thread.submit(partial(self._in_thread, work))

    def _in_thread(self, work: Callable[[QueueFile], T]) -> T:
        try:
            if self._file is not None and not self._file.in_place:
                self._close_file()
                self._file = None
                self._lost += 1
                raise self._moved()
            if self._file is None:
                self._file = QueueFile(self._path, self._max_deliveries)
            return work(self._file)
        except (sqlite3.Error, OSError) as error:
            raise BrokerError(f"the queue file {self._path}: {error}") from error

    def _moved(self) -> BrokerError:
        return BrokerError(
            f"the queue file {self._path} was moved away or replaced: what it held is lost to this process, which "
            "goes on with the file that is there now"
        )

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _poll(self) -> None:
        """Someone begins to wait: look often again."""
        self._poll_s = POLL_FIRST_S
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._look(), name=f"polls {self._path}")

    async def _look(self) -> None:
        """Wake receivers for what other processes did, for as long as there are any."""
        try:
            while queues := self._waiters.queues:
                await asyncio.sleep(self._poll_s)
                news = await self._do(partial(QueueFile.news, queues=queues))
                self._poll_s = POLL_FIRST_S if news else min(POLL_GROWTH * self._poll_s, POLL_LAST_S)
                for queue, lane in news:
                    self._waiters.wake(queue, lane)
        except BrokerError as error:
            log.warning("waiting receivers look for themselves: %s", error)
        finally:
            self._waiters.wake_all()
