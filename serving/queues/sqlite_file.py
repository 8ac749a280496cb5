"""The queues of ``SqliteBroker`` as rows of one file, for one thread: every method is one transaction.

Invariants:
- ``lanes`` has one row for each lane that holds a message, with the lane's first message and room for one lease: a lane
  cannot be leased twice, and its second message cannot be leased at all.
- A lease holds while its row has its token and its deadline lies ahead. Nothing runs at the deadline; whoever looks
  next, in any process, gives the message back (``_collect``).
- Deadlines are wall-clock times, the one clock that processes and reboots share.
- A commit outlives its process at once, and a power cut when the log is next synced. A power cut ends every process
  that can use the file too, so a sync per message would buy nothing.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from callwright.serving.queues.broker import Lease, LeaseLost, Message, QueueStats, dead_letters, why_given_up
from callwright.serving.wal import BUSY_S, prepare

_UNKNOWN = -1  # no data_version

_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    body BLOB NOT NULL,
    message_id TEXT NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 0,
    code TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    sent REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_in_order ON messages (queue, lane, seq);
CREATE TABLE IF NOT EXISTS lanes (
    queue TEXT NOT NULL,
    lane TEXT NOT NULL,
    head INTEGER NOT NULL,
    token TEXT,
    until REAL,
    PRIMARY KEY (queue, lane)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lanes_by_age ON lanes (queue, head);
CREATE INDEX IF NOT EXISTS leases ON lanes (until) WHERE token IS NOT NULL;
"""
_FREE = "SELECT lane, head FROM lanes WHERE queue = ? AND token IS NULL"
_EXPIRED = """
SELECT lanes.queue, lanes.lane, head, deliveries FROM lanes JOIN messages ON seq = head
WHERE token IS NOT NULL AND until <= ?
"""


class QueueFile:
    """An open file. Methods raise sqlite3.Error where the file fails, and LeaseLost."""

    def __init__(self, path: Path, max_deliveries: int) -> None:
        self._max_deliveries = max_deliveries
        self._version = _UNKNOWN
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            prepare(self._db, _SCHEMA, synchronous="NORMAL")
            self._path, self._identity = path, _identity(path)
        except BaseException:
            self._db.close()
            raise

    @property
    def in_place(self) -> bool:
        """Whether its path still leads to this file. A moved one would be two: each process would have its own."""
        try:
            return _identity(self._path) == self._identity
        except FileNotFoundError:
            return False

    def put(self, queue: str, message: Message) -> None:
        """Append to a lane."""
        with self._writing():
            self._append(queue, message)

    def take(self, queue: str, lane: str | None, lease_s: float) -> Lease | None:
        """Lease the oldest free head, of one lane or of any; None where there is none."""
        if not self._expired() and self._free(queue, lane) is None:
            return None  # the common answer of a waiting receiver: found without the write lock
        with self._writing():
            self._collect()
            found = self._free(queue, lane)
            if found is None:
                return None
            place, head = found
            self._db.execute("UPDATE messages SET deliveries = deliveries + 1 WHERE seq = ?", (head,))
            token = uuid.uuid4().hex
            self._db.execute(
                "UPDATE lanes SET token = ?, until = ? WHERE queue = ? AND lane = ?",
                (token, time.time() + lease_s, queue, place),
            )
            return Lease(queue, self._message(head), token)

    def untake(self, lease: Lease) -> None:
        """Give back a message that its receiver never saw: not a delivery."""
        with self._writing():
            head = self._held(lease)
            self._db.execute("UPDATE messages SET deliveries = deliveries - 1 WHERE seq = ?", (head,))
            self._release(lease.queue, lease.message.lane)
            self._version = _UNKNOWN

    def renew(self, lease: Lease, lease_s: float) -> None:
        """Move the deadline."""
        with self._writing():
            self._held(lease)
            self._db.execute(
                "UPDATE lanes SET until = ? WHERE queue = ? AND lane = ?",
                (time.time() + lease_s, lease.queue, lease.message.lane),
            )

    def complete(self, lease: Lease) -> None:
        """Remove the message."""
        with self._writing():
            self._drop(lease.queue, lease.message.lane, self._held(lease))

    def abandon(self, lease: Lease) -> None:
        """Give the message back, or up."""
        with self._writing():
            head = self._held(lease)
            self._give_back(lease.queue, lease.message.lane, head, lease.message.delivery_count)

    def dead_letter(self, lease: Lease, code: str, reason: str) -> None:
        """Set the message aside."""
        with self._writing():
            self._bury(lease.queue, lease.message.lane, self._held(lease), code, reason)

    def peek(self, queue: str, limit: int) -> list[Message]:
        """The oldest messages."""
        if self._expired():  # a message of another queue may be due among these dead letters
            with self._writing():
                self._collect()
        query = "SELECT seq FROM messages WHERE queue = ? ORDER BY seq LIMIT ?"
        return [self._message(seq) for (seq,) in self._db.execute(query, (queue, limit)).fetchall()]

    def stats(self, queue: str) -> QueueStats:
        """How the queue stands."""
        query = "SELECT COUNT(*), MIN(sent) FROM messages WHERE queue = ?"
        depth, oldest = self._db.execute(query, (queue,)).fetchone()
        query = "SELECT COUNT(*) FROM lanes WHERE queue = ? AND token IS NOT NULL AND until > ?"
        (leased,) = self._db.execute(query, (queue, time.time())).fetchone()
        return QueueStats(depth, leased, None if oldest is None else time.time() - oldest)

    def news(self, queues: Iterable[str]) -> list[tuple[str, str]]:
        """The free lanes of ``queues``, where another process changed the file, or a lease ended on its own, since the
        last call; else none."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        expired = self._expired()
        if version == self._version and not expired:
            return []
        if expired:
            with self._writing():
                self._collect()
        self._version = version
        return [(queue, lane) for queue in queues for lane, _ in self._db.execute(_FREE, (queue,)).fetchall()]

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _append(self, queue: str, message: Message) -> None:
        row = (queue, message.lane, message.body, message.message_id)
        dead = (message.delivery_count, message.code, message.reason, message.sent_at)
        seq = self._db.execute(
            "INSERT INTO messages (queue, lane, body, message_id, deliveries, code, reason, sent)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row + dead,
        ).lastrowid
        self._db.execute(
            "INSERT INTO lanes (queue, lane, head) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (queue, message.lane, seq)
        )

    def _free(self, queue: str, lane: str | None) -> tuple[str, int] | None:
        if lane is None:
            found = self._db.execute(_FREE + " ORDER BY head LIMIT 1", (queue,)).fetchone()
        else:
            found = self._db.execute(_FREE + " AND lane = ?", (queue, lane)).fetchone()
        return None if found is None else (found[0], found[1])

    def _expired(self) -> bool:
        query = "SELECT 1 FROM lanes WHERE token IS NOT NULL AND until <= ? LIMIT 1"
        return self._db.execute(query, (time.time(),)).fetchone() is not None

    def _collect(self) -> None:
        """Give back the messages whose leases ran out."""
        self._version = _UNKNOWN  # the file's version does not tell this connection of its own changes
        for queue, lane, head, deliveries in self._db.execute(_EXPIRED, (time.time(),)).fetchall():
            self._give_back(queue, lane, head, deliveries)

    def _held(self, lease: Lease) -> int:
        """The message under a lease that still holds."""
        found = self._db.execute(
            "SELECT head FROM lanes WHERE queue = ? AND lane = ? AND token = ? AND until > ?",
            (lease.queue, lease.message.lane, lease.token, time.time()),
        ).fetchone()
        if found is None:
            raise LeaseLost(f"the lease on a message of {lease.queue} had ended")
        return int(found[0])

    def _give_back(self, queue: str, lane: str, head: int, deliveries: int) -> None:
        why = why_given_up(queue, deliveries, self._max_deliveries)
        if why is None:
            self._release(queue, lane)
        else:
            self._bury(queue, lane, head, *why)

    def _release(self, queue: str, lane: str) -> None:
        self._db.execute("UPDATE lanes SET token = NULL, until = NULL WHERE queue = ? AND lane = ?", (queue, lane))

    def _bury(self, queue: str, lane: str, head: int, code: str, reason: str) -> None:
        dead = replace(self._message(head), code=code, reason=reason)
        self._drop(queue, lane, head)
        self._append(dead_letters(queue), dead)

    def _drop(self, queue: str, lane: str, head: int) -> None:
        """Remove a lane's first message; the lane goes on with the next, if there is one."""
        self._db.execute("DELETE FROM messages WHERE seq = ?", (head,))
        query = "SELECT MIN(seq) FROM messages WHERE queue = ? AND lane = ?"
        (following,) = self._db.execute(query, (queue, lane)).fetchone()
        if following is None:
            self._db.execute("DELETE FROM lanes WHERE queue = ? AND lane = ?", (queue, lane))
        else:
            self._db.execute(
                "UPDATE lanes SET head = ?, token = NULL, until = NULL WHERE queue = ? AND lane = ?",
                (following, queue, lane),
            )

    def _message(self, seq: int) -> Message:
        query = "SELECT body, message_id, lane, deliveries, code, reason, sent FROM messages WHERE seq = ?"
        return Message(*self._db.execute(query, (seq,)).fetchone())


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
