"""The cache of the web tool: an answer stands, in every process, and a replay gives it without its service."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from web_servers import ANSWERS, FOUND, NOTHING, Got, Handler, says, search, serving, settings

from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web import WebSettings, backoff, search_executor
from callwright.envs.executors.web.cache import AnswerCache
from callwright.envs.executors.web.faults import SearchFault
from callwright.envs.executors.web.make import answers_digest
from callwright.envs.executors.web.search import SearchExecutor
from callwright.serving.errors import UserError

pytestmark = pytest.mark.integration

ANSWER = says(ANSWERS["searxng"])
OK = {"type": "web", "status": "ok", "results": FOUND}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another almost at once."""
    monkeypatch.setattr(backoff, "BASE_S", 0.01)


@asynccontextmanager
async def started(settings: WebSettings) -> AsyncIterator[SearchExecutor]:
    executor = search_executor(settings, {})
    try:
        await executor.start()
        yield executor
    finally:
        await executor.close()


def cached(url: str, path: Path, mode: str = "read-write", **fields: Any) -> WebSettings:
    return settings(url, cache=mode, cache_file=path, **fields)


async def test_a_search_is_asked_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "web.sqlite"
    async with serving(ANSWER, says(NOTHING["searxng"])) as server:
        for _ in range(2):  # also behind a restart
            async with started(cached(server.url, path)) as executor:
                assert [await executor.run(search()), await executor.run(search())] == [OK, OK]
        assert len(server.requests) == 1


async def test_without_a_cache_every_search_is_asked() -> None:
    async with serving(ANSWER) as server, started(settings(server.url)) as executor:
        await executor.run(search())
        await executor.run(search())
        assert len(server.requests) == 2


async def test_another_query_count_service_or_setting_is_another_search(tmp_path: Path) -> None:
    path = tmp_path / "web.sqlite"
    async with serving(ANSWER) as server:
        same = cached(server.url, path)
        async with started(same) as executor:
            for call in (search(), search("Capital of Norway"), search(k=2), search()):
                await executor.run(call)
        assert len(server.requests) == 3
        others = [cached(server.url, path, fetch_pages=1), cached(f"{server.url}/other", path)]
        async with started(others[0]) as executor:
            await executor.run(search("capital of Norway", 3))
        assert len(server.requests) == 4
    alike = [
        WebSettings.model_validate({**same.model_dump(), **change})
        for change in ({"timeout_s": 9.0}, {"url": f"{server.url}/"})
    ]
    assert len({answers_digest(each) for each in (same, *alike, *others)}) == 3


async def test_nothing_found_is_kept_as_an_answer(tmp_path: Path) -> None:
    two = serving(says(NOTHING["searxng"]), ANSWER)
    async with two as server, started(cached(server.url, tmp_path / "c")) as executor:
        records = [await executor.run(search()), await executor.run(search())]
    assert [record["results"] for record in records] == [[], []]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "handler",
    [
        says("boom", 500),
        says("no", 404),
        says("<html>"),
        says([]),
        says({"results": [], "unresponsive_engines": [["google", "CAPTCHA"]]}),
    ],
)
async def test_an_error_is_never_kept(handler: Handler, tmp_path: Path) -> None:
    async with serving(handler) as server:
        async with started(cached(server.url, tmp_path / "c")) as executor:
            assert (await executor.run(search()))["status"] == "infra_fault"
            before = len(server.requests)
            assert (await executor.run(search()))["status"] == "infra_fault"
        assert len(server.requests) == 2 * before
    with sqlite3.connect(tmp_path / "c") as db:
        assert db.execute("SELECT count(*) FROM answers").fetchone() == (0,)


async def test_like_searches_at_once_ask_once(tmp_path: Path) -> None:
    async with serving(ANSWER) as server, started(cached(server.url, tmp_path / "c")) as executor:
        records = await asyncio.gather(*(executor.run(search()) for _ in range(8)))
        assert records == [OK] * 8
        assert len(server.requests) == 1


async def test_waiting_for_a_like_search_has_the_deadline_of_ones_own(tmp_path: Path) -> None:
    async def never(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with serving(never) as server, started(cached(server.url, tmp_path / "c", timeout_s=0.5)) as executor:
        first, second = await asyncio.gather(executor.run(search()), executor.run(search()))
    assert f"while waiting for {server.url}" in first["message"]
    assert "while waiting for" in second["message"]


# Replay


async def test_a_replay_answers_without_its_service_and_without_a_key(tmp_path: Path) -> None:
    path = tmp_path / "web.sqlite"
    async with serving(says(ANSWERS["brave"])) as server:
        made = cached(server.url, path, backend="brave")
        executor = search_executor(made, {"BRAVE_API_KEY": "k"})
        await executor.start()
        assert await executor.run(search()) == OK
        await executor.close()
        count = len(server.requests)
    before = path.read_bytes()
    async with started(cached(server.url, path, "replay", backend="brave")) as executor:
        assert await executor.run(search()) == OK
        missed = await executor.run(search("never asked"))
    assert missed == {
        "type": "web",
        "status": "infra_fault",
        "executor": "web/brave",
        "message": f"web/brave: replay: the cache {path} holds no answer to q='never asked' k=3",
    }
    assert len(server.requests) == count
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["web.sqlite"]


async def test_a_cache_for_replay_takes_nothing_in(tmp_path: Path) -> None:
    later = asyncio.get_running_loop().time() + 60
    for replay in (False, True):
        cache = AnswerCache(tmp_path / "c", "searxng", "s", replay=replay)
        await cache.open()
        if replay:
            with pytest.raises(SearchFault, match="readonly"):
                await cache.put("q", 1, [], later)
        await cache.close()


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (None, "replay", "there is no file"),
        (b"not a database at all" * 100, "replay", "cannot be used"),
        (b"not a database at all" * 100, "read-write", "cannot be used"),
        (b"", "replay", "no such table"),
    ],
)
async def test_a_file_that_is_no_cache_is_one_line(content: bytes | None, mode: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "c"
    if content is not None:
        path.write_bytes(content)
    executor = search_executor(cached("http://127.0.0.1:1", path, mode), {})
    with pytest.raises(UserError, match=why) as caught:
        await executor.start()
    await executor.close()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    executor = search_executor(cached("http://127.0.0.1:1", tmp_path), {})
    with pytest.raises(UserError, match="cannot be used"):
        await executor.start()
    await executor.close()


async def test_a_cache_that_another_process_holds_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "c"
    async with serving(ANSWER) as server, started(cached(server.url, path, timeout_s=0.5)) as executor:
        assert await executor.run(search("before")) == OK
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        record = await executor.run(search())
        holder.execute("ROLLBACK")
        holder.close()
    assert record["status"] == "infra_fault"
    assert record["message"] == f"web/searxng: the search's time ran out while waiting for the cache {path}"


# Several processes

WRITER = """
import asyncio, json, sys, time
from pathlib import Path
from callwright.envs.executors.corpus import Document
from callwright.envs.executors.web.cache import AnswerCache

async def main(path, name):
    cache = AnswerCache(Path(path), "searxng", "s", replay=False)
    await cache.open()
    later = asyncio.get_running_loop().time() + 60
    told = [
        (await cache.put(f"q{i}", 3, [Document(name, str(i))], later))[0].title for i in range(40)
    ]
    await cache.close()
    print(json.dumps(told))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_write_at_once_agree_on_every_answer(tmp_path: Path) -> None:
    path = tmp_path / "c"
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"p{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    told = []
    for process in running:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        told.append(json.loads(out))
    assert told[0] == told[1] == told[2] == told[3]
    cache = AnswerCache(path, "searxng", "s", replay=True)
    await cache.open()
    later = asyncio.get_running_loop().time() + 60
    stands = [await cache.get(f"q{i}", 3, later) for i in range(40)]
    await cache.close()
    assert stands == [(Document(name, str(i)),) for i, name in enumerate(told[0])]
