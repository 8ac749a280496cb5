"""The event store: rows are final and in order, a repeat adds nothing, and what was acknowledged survives a kill."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callwright.serving.protocol import Event, EventType
from callwright.serving.store import EventStore, new_key

pytestmark = pytest.mark.unit

WRITER = """
import sys
from callwright.serving.protocol import Event, EventType
from callwright.serving.store import EventStore
with EventStore(sys.argv[1]) as store:
    for number in range(int(sys.argv[3])):
        (seq,) = store.append(sys.argv[2], [Event(EventType.RESPOND, f"{sys.argv[2]} {number}")])
        print(seq, number, flush=True)
"""


def said(text: str, **payload: object) -> Event:
    return Event(EventType.RESPOND, text, payload or None, timestamp=1.5)


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_events_come_back_as_they_went_in_order(tmp_path: Path) -> None:
    events = [said("a"), said("é 😀 \ud800 \0", incomplete=True, n={"x": [1]}), Event(EventType.CALL, "{}")]
    with EventStore(tmp_path / "events.db") as store:
        first = store.append("one", events[:2])
        other = store.append("two", [said("b")])
        last = store.append("one", events[2:])
        assert first + other + last == sorted({*first, *other, *last})
        rows = store.replay("one")
        assert [row.event for row in rows] == events
        assert [row.event.timestamp for row in rows] == [event.timestamp for event in events]
        assert [row.seq for row in store.replay("one", after=first[0])] == [first[1], *last]
        assert [(c.name, c.events, c.started) for c in store.conversations()] == [("one", 3, 1.5), ("two", 1, 1.5)]
        assert store.replay("none") == []
    with EventStore(tmp_path / "events.db") as again:
        assert [row.event for row in again.replay("one")] == events


def test_a_repeat_under_its_key_adds_nothing(tmp_path: Path) -> None:
    with EventStore(tmp_path / "events.db") as store:
        keys = [new_key(), new_key()]
        events = [said("a"), said("b")]
        seqs = store.append("c", events, keys)
        assert store.append("c", events, keys) == seqs
        assert len(store.replay("c")) == 2
        with pytest.raises(ValueError, match="another event"):
            store.append("c", [said("new"), said("other")], [new_key(), keys[0]])
        assert [row.event.content for row in store.replay("c")] == ["a", "b"]  # all or none


def test_rows_are_final(tmp_path: Path) -> None:
    with EventStore(tmp_path / "events.db") as store:
        store.append("c", [said("a")])
    for change in ("UPDATE events SET body = '[\"x\", null]'", "DELETE FROM events"):
        with sqlite3.connect(tmp_path / "events.db") as db, pytest.raises(sqlite3.IntegrityError, match="final"):
            db.execute(change)


def test_an_export_is_one_object_a_line(tmp_path: Path) -> None:
    with EventStore(tmp_path / "events.db") as store:
        store.append("one", [said("a"), said("b\nc")])
        store.append("two", [said("d")])
        out = io.StringIO()
        assert store.export(out) == 3
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        assert [(line["conversation"], line["content"]) for line in lines] == [
            ("one", "a"),
            ("one", "b\nc"),
            ("two", "d"),
        ]
        assert set(lines[0]) == {"seq", "key", "conversation", "type", "content", "payload", "timestamp"}
        assert store.export(io.StringIO(), ["two"]) == 1


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    writers = [writer(path, name, 100) for name in ("one", "two")]
    printed = [process.communicate(timeout=60)[0] for process in writers]
    assert [process.returncode for process in writers] == [0, 0]
    seqs = [int(line.split()[0]) for text in printed for line in text.splitlines()]
    assert len(set(seqs)) == 200
    with EventStore(path) as store:
        for name in ("one", "two"):
            assert [row.event.content for row in store.replay(name)] == [f"{name} {n}" for n in range(100)]


def test_many_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for attempt in range(20):
        path, gate = tmp_path / f"{attempt}.db", threading.Barrier(6)

        def opened(path: Path = path, gate: threading.Barrier = gate) -> None:
            gate.wait()
            EventStore(path).close()

        with ThreadPoolExecutor(6) as pool:
            for waiting in [pool.submit(opened) for _ in range(6)]:
                waiting.result()


def test_threads_share_one_store(tmp_path: Path) -> None:
    with EventStore(tmp_path / "events.db") as store:
        found: dict[int, list[int]] = defaultdict(list)

        def work(number: int) -> None:
            for _ in range(20):
                found[number] += store.append(f"c{number}", [said("x")])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({seq for seqs in found.values() for seq in seqs}) == 80
        assert all(seqs == sorted(seqs) for seqs in found.values())


def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    for round_ in range(3):
        process = writer(path, f"c{round_}", 100_000)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(30 + 17 * round_)]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read().splitlines()
        process.wait()
        acknowledged = [tuple(map(int, line.split())) for line in lines if len(line.split()) == 2]
        with EventStore(path) as store:
            rows = {row.seq: row.event.content for row in store.replay(f"c{round_}")}
        assert len(acknowledged) >= 30
        assert all(rows[seq] == f"c{round_} {number}" for seq, number in acknowledged[:-1])
