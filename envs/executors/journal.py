"""Calls that were begun and whose commands are not settled yet, with the results of those that ran: a SQLite file that
the workers of a broker share.

Invariants:
- A call is in it from before it runs. What was begun, was not taken back and has no result cost its worker's life, so a
  call that kills workers is known by how often it was begun.
- A result is written before it is published and forgotten once its command is settled. A command that comes again,
  because its worker was killed in between, is answered from here and does not run a second time.
- A killed process loses nothing that ``write`` returned for. A power cut may: nothing is synced. The command is then
  one whose result nobody knows, which is safe.
- After it is open it never raises: a journal that fails says so in the log and knows nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from callwright.serving.errors import UserError
from callwright.serving.queues.broker import Message

log = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_S = 10.0  # how long one worker waits for another's write
ORPHAN_S = 86400.0  # a call left by a worker that was killed between settling and forgetting

_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
    key TEXT PRIMARY KEY, begun INTEGER NOT NULL DEFAULT 0, record BLOB, written REAL NOT NULL
)
"""
_BEGIN = """
INSERT INTO calls (key, begun, written) VALUES (?, 1, ?) ON CONFLICT DO UPDATE SET begun = begun + 1 RETURNING begun
"""
_WRITE = """
INSERT INTO calls (key, record, written) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET record = excluded.record
"""


class Journal:
    """An open journal, for one event loop. Each process opens its own."""

    def __init__(self, path: Path) -> None:
        """Raises UserError where the file cannot be had."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # One thread uses it at a time: the one below.
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.execute(_SCHEMA)
            self._db.execute("DELETE FROM calls WHERE written < ?", (time.time() - ORPHAN_S,))
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"executors.journal: cannot use {path}: {error}") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.failures = 0

    async def begin(self, queue: str, command: Message) -> int:
        """A command's call is about to run; how many workers began it before, and ended neither it nor its place."""
        row = (_key(queue, command), time.time())
        found = await self._run(lambda: self._db.execute(_BEGIN, row).fetchone())
        return 0 if found is None else int(found[0]) - 1

    async def take_back(self, queue: str, command: Message) -> None:
        """It ended without a result, and its worker lives."""
        key = _key(queue, command)
        await self._run(lambda: self._db.execute("UPDATE calls SET begun = begun - 1 WHERE key = ?", (key,)))

    async def write(self, queue: str, command: Message, record: bytes) -> None:
        """Keep the result of a command until it is forgotten."""
        row = (_key(queue, command), record, time.time())
        await self._run(lambda: self._db.execute(_WRITE, row))

    async def read(self, queue: str, command: Message) -> bytes | None:
        """The result of a command, if one is known."""
        key = _key(queue, command)
        row = await self._run(
            lambda: self._db.execute("SELECT record FROM calls WHERE key = ?", (key,)).fetchone(),
        )
        return None if row is None or row[0] is None else bytes(row[0])

    async def forget(self, queue: str, command: Message) -> None:
        """The command is settled and will not come again."""
        key = _key(queue, command)
        await self._run(lambda: self._db.execute("DELETE FROM calls WHERE key = ?", (key,)))

    async def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._thread.shutdown(wait=True)
        self._db.close()

    async def _run(self, what: Callable[[], T]) -> T | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, what)
        except sqlite3.Error as error:
            self.failures += 1
            log.warning("the journal of results failed: %s", error)
            return None


def _key(queue: str, command: Message) -> str:
    """One command. The body is in it because ids are the senders', and a sender may use one twice."""
    parts = (queue, command.lane, command.message_id)
    return hashlib.sha256("\0".join(parts).encode() + b"\0" + command.body).hexdigest()
