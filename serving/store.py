"""The event store: conversations as rows of one SQLite file.

Invariants: rows are only ever added, and the file itself refuses anything else; ``seq`` grows with every row of the
file, so the order of events never hangs on a clock; an event that is appended twice under one key is one row; what
``append`` returned for is on disk, whatever kills the process afterwards, and several processes may write at once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from callwright.serving.protocol import Event, EventType
from callwright.serving.wal import BUSY_S, prepare

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    timestamp REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS by_conversation ON events (conversation, seq);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are final'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are final'); END;
"""
_INSERT = """
INSERT INTO events (key, conversation, type, body, timestamp) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One row."""

    seq: int
    key: str
    conversation: str
    event: Event

    def to_dict(self) -> dict[str, Any]:
        """The row as a line of an export."""
        return {"seq": self.seq, "key": self.key, "conversation": self.conversation, **self.event.to_dict()}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the store holds of one conversation; times are Unix seconds."""

    name: str
    events: int
    started: float
    changed: float


def new_key() -> str:
    """A key for one event. Made before the first attempt to append it, so that another attempt adds nothing."""
    return uuid.uuid4().hex


class EventStore:
    """An open store. Threads may share it; each process opens its own.

    ``read_only`` takes a store that is there already, and changes nothing. Raises ``sqlite3.DatabaseError`` for a file
    that is none.
    """

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        self._lock = threading.Lock()
        name = f"{Path(path).absolute().as_uri()}?mode=ro" if read_only else path
        self._db = sqlite3.connect(name, BUSY_S, isolation_level=None, check_same_thread=False, uri=read_only)
        try:
            if read_only:
                self._db.execute("SELECT seq, key, conversation, type, body, timestamp FROM events LIMIT 0")
            else:
                prepare(self._db, _SCHEMA, synchronous="FULL")
        except BaseException:
            self._db.close()
            raise

    def append(self, conversation: str, events: Sequence[Event], keys: Sequence[str] | None = None) -> list[int]:
        """Add events, all or none, and return their ``seq``s. A key that is there already gives its row's.

        Raises ValueError where a key belongs to another event.
        """
        names = [new_key() for _ in events] if keys is None else keys
        rows = [
            (key, conversation, str(event.type), _body(event), event.timestamp)
            for key, event in zip(names, events, strict=True)
        ]
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                seqs = [self._insert(row) for row in rows]
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        return seqs

    def _insert(self, row: tuple[str, str, str, str, float]) -> int:
        self._db.execute(_INSERT, row)
        found = self._db.execute("SELECT seq, conversation, type, body FROM events WHERE key = ?", row[:1]).fetchone()
        if tuple(found[1:]) != row[1:4]:
            raise ValueError(f"the key {row[0]} belongs to another event")
        return int(found[0])

    def replay(self, conversation: str, after: int = 0) -> list[StoredEvent]:
        """The events of a conversation in order; with ``after``, those behind that ``seq``."""
        return list(self._select("WHERE conversation = ? AND seq > ?", (conversation, after)))

    def conversations(self) -> list[Conversation]:
        """Every conversation, in the order in which they began."""
        query = """SELECT conversation, COUNT(*), MIN(timestamp), MAX(timestamp) FROM events
                   GROUP BY conversation ORDER BY MIN(seq)"""
        with self._lock:
            return [Conversation(*row) for row in self._db.execute(query).fetchall()]

    def export(self, file: TextIO, conversations: Iterable[str] | None = None) -> int:
        """Write one JSON object a line, of these conversations or of all, in order; returns how many."""
        lines = 0
        names = [found.name for found in self.conversations()] if conversations is None else conversations
        for name in names:
            for stored in self.replay(name):
                file.write(json.dumps(stored.to_dict()) + "\n")
                lines += 1
        return lines

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            self._db.close()

    def _select(self, where: str, values: Sequence[Any]) -> Iterator[StoredEvent]:
        query = f"SELECT seq, key, conversation, type, body, timestamp FROM events {where} ORDER BY seq"
        with self._lock:
            rows = self._db.execute(query, values).fetchall()
        for seq, key, conversation, kind, body, timestamp in rows:
            content, payload = json.loads(body)
            yield StoredEvent(seq, key, conversation, Event(EventType(kind), content, payload, timestamp))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _body(event: Event) -> str:
    # As ASCII: half a surrogate pair, which SQLite's text cannot hold, comes back as it was.
    return json.dumps([event.content, None if event.payload is None else dict(event.payload)])
