"""The journal of results: what it keeps, who shares it, and what becomes of it when its file fails."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callwright.envs.executors.journal import ORPHAN_S, Journal
from callwright.serving.errors import UserError
from callwright.serving.queues.broker import Message

pytestmark = pytest.mark.integration

COMMAND = Message(b"{}", "a-0.0/0", "a-0.0", 2)


async def test_a_result_is_kept_until_it_is_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "folder" / "journal.db")
    await journal.write("q", COMMAND, b"\xff\x00record")
    again = Journal(tmp_path / "folder" / "journal.db")
    assert await again.read("q", COMMAND) == b"\xff\x00record"
    for other in (
        Message(b"{ }", "a-0.0/0", "a-0.0", 2),
        Message(b"{}", "a-0.0/1", "a-0.0", 2),
        Message(b"{}", "a-0.0/0", "a-1.0", 2),
    ):
        assert await again.read("q", other) is None
    assert await again.read("other", COMMAND) is None
    await again.forget("q", COMMAND)
    assert await journal.read("q", COMMAND) is None
    await journal.close()
    await again.close()


async def test_it_counts_who_began_a_call_and_did_not_end_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    assert [await journal.begin("q", COMMAND) for _ in range(3)] == [0, 1, 2]
    assert await journal.read("q", COMMAND) is None
    await journal.take_back("q", COMMAND)
    assert await journal.begin("q", COMMAND) == 2
    await journal.write("q", COMMAND, b"record")
    assert await journal.read("q", COMMAND) == b"record"
    await journal.forget("q", COMMAND)
    assert await journal.begin("q", COMMAND) == 0
    await journal.close()


async def test_processes_share_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    program = f"""
        import asyncio, sys
        from pathlib import Path
        from callwright.envs.executors.journal import Journal
        from callwright.serving.queues.broker import Message

        async def main(name):
            journal = Journal(Path({str(path)!r}))
            for number in range(40):
                command = Message(b"x", str(number), name)
                await journal.write("q", command, name.encode())
                assert await journal.read("q", command) == name.encode()
                if number % 2:
                    await journal.forget("q", command)
            assert journal.failures == 0
            await journal.close()

        asyncio.run(main(sys.argv[1]))
    """
    code = "\n".join(line.removeprefix("        ") for line in program.splitlines())
    processes = [subprocess.Popen([sys.executable, "-c", code, f"lane-{number}"]) for number in range(4)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0, 0]
    journal = Journal(path)
    for number in range(4):
        for call, kept in ((0, f"lane-{number}".encode()), (1, None)):
            assert await journal.read("q", Message(b"x", str(call), f"lane-{number}")) == kept
    await journal.close()


async def test_what_a_killed_worker_left_goes_with_time(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    await journal.write("q", COMMAND, b"record")
    await journal.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE calls SET written = ?", (time.time() - ORPHAN_S - 1,))
    journal = Journal(path)
    assert await journal.read("q", COMMAND) is None
    await journal.close()


async def test_a_journal_that_fails_says_so_and_knows_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE calls")
    assert await journal.begin("q", COMMAND) == 0
    await journal.write("q", COMMAND, b"record")
    assert await journal.read("q", COMMAND) is None
    await journal.take_back("q", COMMAND)
    await journal.forget("q", COMMAND)
    assert journal.failures == 5
    assert "no such table" in caplog.text
    await journal.close()
    (tmp_path / "text.db").write_text("this is no database, and long enough to be seen as none" * 20)
    with pytest.raises(UserError, match=r"executors.journal: cannot use .*text.db: file is not a database"):
        Journal(tmp_path / "text.db")
