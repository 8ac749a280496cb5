"""`callwright queues`: what stands where, and what becomes of dead letters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from worker_processes import HEAVY, QUEUES

from callwright.envs.executors.presence import Presence
from callwright.serving.queues.broker import REWARD_QUEUE, command_queue, dead_letters
from callwright.serving.queues.sqlite import SqliteBroker

pytestmark = pytest.mark.integration

WEB = command_queue("web")


def queues(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r})); from callwright.scripts.cli import main; main()"
    command = [sys.executable, "-c", code, "queues", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def rows(folder: Path, *words: str) -> dict[str, Any]:
    done = queues(folder, *QUEUES, *words, "--json", "-")
    assert done.returncode == 0, done.stderr
    return {row.pop("queue"): row for row in json.loads(done.stdout)["queues"]}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SqliteBroker]:
    """A waiting command, a leased one, two dead ones, and a dead letter of the reward queue."""
    made = SqliteBroker(tmp_path / "queues.db")
    for lane in "abcd":
        await made.send(WEB, b"body of " + lane.encode(), message_id=f"id-{lane}", lane=lane)
    for lane in "ab":
        lease = await made.receive(WEB, lane=lane, timeout_s=1)
        assert lease is not None
        await made.dead_letter(lease, code="foreign_type", reason="no")
    assert await made.receive(WEB, lane="c", timeout_s=1, lease_s=600) is not None
    await made.send(REWARD_QUEUE, b"late", lane="x")
    late = await made.receive(REWARD_QUEUE, timeout_s=1)
    assert late is not None
    await made.dead_letter(late, code="late_reply", reason="no")
    yield made
    await made.close()


async def test_it_shows_what_stands_where(tmp_path: Path, broker: SqliteBroker) -> None:
    presence = Presence(broker, "web")
    await presence.announce()
    found = rows(tmp_path)
    assert list(found) == [WEB, command_queue("code"), REWARD_QUEUE]
    assert found[WEB].pop("oldest_s") >= 0
    assert found[WEB] == {"depth": 2, "leased": 1, "dead_letters": 2, "workers": 1}
    assert found[REWARD_QUEUE] == {"depth": 0, "oldest_s": None, "leased": 0, "dead_letters": 1, "workers": None}
    assert found[command_queue("code")]["workers"] == 0
    await presence.leave()

    table = queues(tmp_path, *QUEUES).stdout
    for word in (WEB, "messages", "oldest", "leased", "dead letters", "workers"):
        assert word in table


async def test_dead_letters_are_sent_again_in_their_lanes(tmp_path: Path, broker: SqliteBroker) -> None:
    found = rows(tmp_path, "--replay", WEB)
    assert (found[WEB]["depth"], found[WEB]["dead_letters"]) == (4, 0)
    assert found[REWARD_QUEUE]["dead_letters"] == 1
    again = [message for message in await broker.peek(WEB) if message.lane in "ab"]
    assert [(m.body, m.message_id, m.lane, m.delivery_count, m.code) for m in again] == [
        (b"body of a", "id-a", "a", 0, ""),
        (b"body of b", "id-b", "b", 0, ""),
    ]


async def test_dead_letters_are_thrown_away(tmp_path: Path, broker: SqliteBroker) -> None:
    done = queues(tmp_path, *QUEUES, "--discard", WEB)
    assert "threw 2 dead letters of commandqueue-web away" in done.stderr
    assert await broker.peek(dead_letters(WEB)) == []
    assert len(await broker.peek(WEB)) == 2
    assert len(await broker.peek(dead_letters(REWARD_QUEUE))) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["executors.broker=memory"], "set executors.broker=sqlite"),
        ([], "there is no file runs/queues.db; no worker has used it yet"),
        ([*QUEUES], "there is no file queues.db; no worker has used it yet"),
        ([*QUEUES, "--replay", "web"], "there is no queue web; there are commandqueue-web"),
        ([*QUEUES, "--replay", WEB, "--discard", WEB], "one of --replay and --discard"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, tmp_path: Path) -> None:
    done = queues(tmp_path, *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
