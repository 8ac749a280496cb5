"""Answers that were given, so that a search is paid for once and a run can be repeated without its service.

Invariants: a row is an answer, never a failure; the first answer to a search stands, and everyone who asked is given
that one, in whichever process; a row is whole or absent. A cache that is opened for replay writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.faults import SearchFault, until
from callwright.serving.errors import UserError

BUSY_S = 5.0  # how long one process waits for another

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    backend TEXT NOT NULL,
    settings TEXT NOT NULL,
    query TEXT NOT NULL,
    k INTEGER NOT NULL,
    results TEXT NOT NULL,
    PRIMARY KEY (backend, settings, query, k)
) WITHOUT ROWID
"""
_SELECT = "SELECT results FROM answers WHERE backend = ? AND settings = ? AND query = ? AND k = ?"
_INSERT = "INSERT INTO answers VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"

Answer = tuple[Document, ...]


class AnswerCache:
    """The answers of one backend under one digest of the settings; a file holds those of many.

    The file's work is done in a thread of its own, between ``open`` and ``close``.
    """

    def __init__(self, path: Path, backend: str, settings: str, *, replay: bool) -> None:
        self.path = path
        self._of = (backend, settings)
        self._replay = replay
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Raises UserError where the file is no cache, or a replay has none."""
        if self._replay and not self.path.is_file():
            raise UserError(f"executors.web.cache is replay, and there is no file {self.path}")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-cache")
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connect)
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"executors.web.cache_file {self.path} cannot be used: {error}") from None

    async def get(self, query: str, k: int, deadline: float) -> Answer | None:
        """The answer that stands. Raises SearchFault where the file fails, or is busy past the ``deadline``."""
        return await self._run(query, k, None, deadline)

    async def put(self, query: str, k: int, answer: Sequence[Document], deadline: float) -> Answer:
        """Keep an answer, unless there is one already; returns the one that stands. Raises SearchFault."""
        return await self._run(query, k, answer, deadline) or ()

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=True)

    async def _run(self, query: str, k: int, answer: Sequence[Document] | None, deadline: float) -> Answer | None:
        loop = asyncio.get_running_loop()
        try:
            async with until(deadline, f"the cache {self.path}"):
                return await loop.run_in_executor(self._thread, self._look, query, k, answer)
        except sqlite3.Error as error:
            raise SearchFault(f"the cache {self.path} failed: {error}") from None

    def _look(self, query: str, k: int, answer: Sequence[Document] | None) -> Answer | None:
        """Insert where there is an answer to insert, then read what stands."""
        if self._db is None:
            raise sqlite3.ProgrammingError("it is not open")
        if answer is not None:
            results = json.dumps([[document.title, document.content, document.url] for document in answer])
            self._db.execute(_INSERT, (*self._of, query, k, results))
        row = self._db.execute(_SELECT, (*self._of, query, k)).fetchone()
        return None if row is None else tuple(Document(*fields) for fields in json.loads(row[0]))

    def _connect(self) -> None:
        if not self._replay:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = "ro" if self._replay else "rwc"
        uri = f"{self.path.resolve().as_uri()}?mode={mode}"
        self._db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        if not self._replay:
            self._db.execute(_SCHEMA)
        self._db.execute(_SELECT, (*self._of, "", 0))  # says now whether the file is a cache

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
