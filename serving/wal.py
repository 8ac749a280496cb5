"""SQLite files that several processes open at once, with a write-ahead log."""

from __future__ import annotations

import sqlite3
import time
from typing import Literal

BUSY_S = 10.0  # how long one process waits for another's transaction
_RETRY_S = 0.02


def prepare(db: sqlite3.Connection, schema: str, *, synchronous: Literal["NORMAL", "FULL"]) -> None:
    """Bring a file, which may be new, into shape. ``FULL`` syncs each commit, so that a power cut cannot undo it.

    SQLite's own wait does not cover the change to a write-ahead log, so this one does. Raises sqlite3.Error.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.executescript(schema)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
