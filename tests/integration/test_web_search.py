"""The web tool over search services, against servers of their shapes: what is asked, what is read, what goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from web_servers import (
    ANSWERS,
    FOUND,
    NOTHING,
    Got,
    Handler,
    bomb,
    drips,
    echoes,
    raw,
    redirects,
    says,
    search,
    serving,
    settings,
)

from callwright.envs.executors.executor import Record
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.executors.web import WebSettings, backoff, search_executor
from callwright.envs.executors.web.backoff import backoff_s, retry_after_s
from callwright.envs.executors.web.client import ATTEMPTS, MAX_ANSWER_BYTES
from callwright.serving.errors import UserError
from callwright.serving.protocol.values import ToolCall
from callwright.serving.queues.dispatcher import CallStatus

pytestmark = pytest.mark.integration

SECRET = "s3cret-Planted-0f1e2d3c"
KEYS = {"BRAVE_API_KEY": SECRET, "SERPER_API_KEY": SECRET, "TAVILY_API_KEY": SECRET}
KEYED = ("brave", "serper", "tavily")
SOON_S = 30.0  # what ends within its deadline of a second has ended by then, on a busy machine too


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another almost at once."""
    monkeypatch.setattr(backoff, "BASE_S", 0.01)


async def ask(settings: WebSettings, call: ToolCall | None = None) -> Record:
    executor = search_executor(settings, KEYS)
    try:
        await executor.start()
        return await executor.run(call or search())
    finally:
        await executor.close()


def asked_for(backend: str, got: Got) -> Any:
    return got.params if got.method == "GET" else json.loads(got.body)


@pytest.mark.parametrize(
    ("backend", "method", "path", "asked", "header"),
    [
        ("searxng", "GET", "/search", {"q": "capital of Norway", "format": "json"}, None),
        ("brave", "GET", "/res/v1/web/search", {"q": "capital of Norway", "count": "3"}, "x-subscription-token"),
        ("serper", "POST", "/search", {"q": "capital of Norway", "num": 3}, "x-api-key"),
        ("tavily", "POST", "/search", {"query": "capital of Norway", "max_results": 3}, "authorization"),
        (
            "retriever",
            "POST",
            "/retrieve",
            {"queries": ["capital of Norway"], "topk": 3, "return_scores": True},
            None,
        ),
    ],
)
async def test_each_service_is_asked_in_its_way_and_answers_in_ours(
    backend: str, method: str, path: str, asked: Any, header: str | None
) -> None:
    async with serving(says(ANSWERS[backend])) as server:
        record = await ask(settings(server.url, backend))
    (got,) = server.requests
    assert (got.method, got.path, asked_for(backend, got)) == (method, path, asked)
    assert [name for name, value in got.headers.items() if SECRET in value] == ([header] if header else [])
    without_url = [{"title": row["title"], "content": row["content"]} for row in FOUND]
    results = without_url if backend == "retriever" else FOUND
    assert record == {"type": "web", "status": "ok", "results": results}


@pytest.mark.parametrize("backend", sorted(NOTHING))
async def test_no_hit_is_ok_and_empty(backend: str) -> None:
    async with serving(says(NOTHING[backend])) as server:
        record = await ask(settings(server.url, backend))
    assert record == {"type": "web", "status": "ok", "results": [], "message": "no results"}


async def test_it_answers_through_the_queues_like_the_corpus() -> None:
    async with serving(says(ANSWERS["searxng"])) as server:
        config = ExecutorSettings(tools=("web",), per_tool={"web": settings(server.url)})
        async with Executors(config) as executors:
            reply = await executors.call(search())
            assert executors.health()[0].executor == "web/searxng"
    assert reply.status is CallStatus.OK
    assert json.loads(reply.record) == {"type": "web", "status": "ok", "results": FOUND}


async def test_a_packed_answer_is_unpacked() -> None:
    import gzip

    packed = gzip.compress(json.dumps(ANSWERS["searxng"]).encode())
    async with serving(says(packed, headers=[("content-encoding", "gzip")])) as server:
        record = await ask(settings(server.url))
    assert record["results"] == FOUND


async def test_odd_fields_are_read_as_far_as_they_go() -> None:
    rows = [
        {"title": 5, "url": "https://e.org/a", "description": "a <strong>b</strong> &amp; \ud800 c"},
        {"title": "long", "description": "word " * 5000},
    ]
    async with serving(says({"type": "search", "web": {"results": rows}})) as server:
        record = await ask(settings(server.url, "brave"))
    first, second = record["results"]
    assert first == {"title": "https://e.org/a", "content": "a b & ? c", "url": "https://e.org/a"}
    assert len(second["content"]) == 3000
    assert json.dumps(record, ensure_ascii=False).encode()


# What goes wrong

FAULTS: list[tuple[str, Handler, str, int]] = [
    ("500", says("boom", 500), "status 500: boom", ATTEMPTS),
    ("404", says("nothing here", 404), "status 404: nothing here", 1),
    ("not json", says("<html>"), "not JSON", 1),
    ("no utf-8", says(b"\xff\xfe\xff"), "not JSON", 1),
    ("nested", says("[" * 200_000), "not JSON", 1),
    ("a list", says([1, 2]), "cannot be used", 1),
    ("rows of text", says({"results": ["a"]}), "no list of objects at results", 1),
    ("engines", says({"results": [], "unresponsive_engines": [["g", "CAPTCHA"]]}), "no engine answered", 1),
    ("no json format", says("Forbidden", 403), "add json to search.formats", 1),
    ("huge", says(b" " * (MAX_ANSWER_BYTES + 1)), f"larger than {MAX_ANSWER_BYTES} bytes", 1),
    ("bomb", bomb(256), f"larger than {MAX_ANSWER_BYTES} bytes", 1),
    ("huge error", says(b"x" * 10**6, 500), "status 500", ATTEMPTS),
    ("no gzip", says(b"{}", headers=[("content-encoding", "gzip")]), "cannot be unpacked", 1),
    ("cut gzip", says(b"\x1f\x8b\x08\0\0\0\0\0", headers=[("content-encoding", "gzip")]), "breaks off", 1),
    ("br", says(b"x", headers=[("content-encoding", "br")]), "packed as 'br'", 1),
    ("cut off", raw(b'HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{"res'), "RemoteProtocolError", ATTEMPTS),
    ("no http", raw(b"SSH-2.0-x\r\n\r\n"), "RemoteProtocolError", ATTEMPTS),
    ("closed", raw(b""), "RemoteProtocolError", ATTEMPTS),
]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("handler", "why", "requests"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
async def test_what_a_service_does_wrong_is_an_infra_fault_that_names_it(
    handler: Handler, why: str, requests: int
) -> None:
    async with serving(handler) as server:
        record = await ask(settings(server.url))
    assert (record["status"], record["executor"]) == ("infra_fault", "web/searxng")
    assert record["message"].startswith("web/searxng: ")
    assert why in record["message"]
    assert "\n" not in record["message"]
    assert len(server.requests) == requests


@pytest.mark.parametrize(
    "handler",
    [drips(), drips(head=b"HTTP/1.1 200 X\r\nx: "), drips(head=b"HTTP/1.1 200 ")],
    ids=["body", "header", "first line"],
)
async def test_a_slow_service_ends_with_the_deadline(handler: Handler) -> None:
    begin = time.monotonic()
    async with serving(handler) as server:
        record = await ask(settings(server.url, timeout_s=0.5))
    assert 0.5 <= time.monotonic() - begin < SOON_S
    assert record["status"] == "infra_fault"
    assert record["message"] == f"web/searxng: the search's time ran out while waiting for {server.url}"


@pytest.mark.usefixtures("hasty")
async def test_a_service_that_is_not_there() -> None:
    async with serving(says("")) as server:
        gone = server.url
    record = await ask(settings(gone))
    assert record["status"] == "infra_fault"
    assert "ConnectError" in record["message"]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_another_attempt_helps(status: int) -> None:
    async with serving(says("later", status), says(ANSWERS["searxng"])) as server:
        record = await ask(settings(server.url))
    assert record["results"] == FOUND
    assert len(server.requests) == 2


async def test_retry_after_is_honoured() -> None:
    begin = time.monotonic()
    async with serving(says("", 429, [("retry-after", "2")]), says(ANSWERS["searxng"])) as server:
        record = await ask(settings(server.url))
    assert record["status"] == "ok"
    assert time.monotonic() - begin >= 2


async def test_a_wait_beyond_the_deadline_is_not_waited() -> None:
    begin = time.monotonic()
    async with serving(says("slow down", 429, [("retry-after", "300")])) as server:
        record = await ask(settings(server.url, timeout_s=60.0))
    assert time.monotonic() - begin < SOON_S
    assert record["status"] == "infra_fault"
    assert "status 429: slow down; no time for another attempt (300.0 s of" in record["message"]
    assert len(server.requests) == 1


def test_waits_grow_with_jitter_that_is_addressed() -> None:
    waits = [backoff_s(attempt, "brave", "q", 3) for attempt in (1, 2, 3)]
    assert waits == [backoff_s(attempt, "brave", "q", 3) for attempt in (1, 2, 3)]
    assert all(low <= wait < 3 * low for wait, low in zip(waits, (0.25, 0.5, 1.0), strict=True))
    assert backoff_s(1, "brave", "q", 3) != backoff_s(1, "brave", "other", 3)


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7, 7),
        (" 120 ", 120, 120),
        ("9" * 400, 1e8, 1e9),
        ("Wed, 01 Jan 2020 00:00:00 GMT", 0, 0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 1e8, 1e10),
        ("soon", 0, 0),
        ("-5", 0, 0),
        ("nan", 0, 0),
        ("²", 0, 0),
        ("", 0, 0),
        (None, 0, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, low: float, high: float) -> None:
    assert low <= retry_after_s(header) <= high


async def test_a_redirect_is_not_followed() -> None:
    async with serving(says(ANSWERS["brave"])) as elsewhere, serving(redirects(elsewhere.url)) as server:
        record = await ask(settings(server.url, "brave"))
    assert record["status"] == "infra_fault"
    assert f"redirects to {elsewhere.url}" in record["message"]
    assert elsewhere.requests == []


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("backend", KEYED)
async def test_a_refused_key_names_its_variable(backend: str, status: int) -> None:
    async with serving(says({"error": "bad token"}, status)) as server:
        record = await ask(settings(server.url, backend))
        own = search_executor(settings(server.url, backend, key_env="MY_KEY"), {"MY_KEY": "other"})
        await own.start()
        other = await own.run(search())
        await own.close()
    assert f"status {status}: the key in {backend.upper()}_API_KEY was refused" in record["message"]
    assert f"status {status}: the key in MY_KEY was refused" in other["message"]
    assert len(server.requests) == 2


@pytest.mark.parametrize("backend", ["searxng", *KEYED])
async def test_a_query_that_is_too_long_is_the_models_own_error(backend: str) -> None:
    async with serving(says(ANSWERS[backend])) as server:
        record = await ask(settings(server.url, backend), search("x" * 3000))
        words = await ask(settings(server.url, backend), search("a " * 60))
    assert (record["status"], "executor" in record) == ("error", False)
    assert "3000 characters; at most" in record["message"]
    assert words["status"] == ("error" if backend == "brave" else "ok")
    assert len(server.requests) == (0 if backend == "brave" else 1)


@pytest.mark.parametrize("q", [" ", "?!", "\x00\x01", "\u2014 \u2026", "\n"])
async def test_a_query_without_words_finds_nothing_and_asks_nobody(q: str) -> None:
    async with serving(says("no query", 400)) as server:
        record = await ask(settings(server.url), search(q))
    assert record == {"type": "web", "status": "ok", "results": [], "message": "no results"}
    assert server.requests == []


async def test_no_control_character_is_sent() -> None:
    async with serving(says(ANSWERS["searxng"])) as server:
        await ask(settings(server.url), search("\x00oslo\x1b \r\nnor\x7fway\u00a0?"))
    assert server.requests[0].params["q"] == "oslo nor way ?"


async def test_an_answer_depends_on_its_query_alone() -> None:
    """No cookie of one answer goes with the next request."""
    async with serving(says(ANSWERS["searxng"], headers=[("set-cookie", "a=b")])) as server:
        executor = search_executor(settings(server.url), {})
        await executor.start()
        await executor.run(search())
        await executor.run(search())
        await executor.close()
    assert [got.headers.get("cookie") for got in server.requests] == [None, None]


async def test_calls_run_at_once() -> None:
    both = asyncio.Event()

    async def handler(got: Got, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == 2:
            both.set()
        await both.wait()
        await says(ANSWERS["searxng"])(got, writer)

    async with serving(handler) as server:
        executor = search_executor(settings(server.url), {})
        await executor.start()
        records = await asyncio.gather(executor.run(search("a")), executor.run(search("b")))
        await executor.close()
    assert [record["status"] for record in records] == ["ok", "ok"]


# The key


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("backend", KEYED)
async def test_a_planted_secret_is_in_no_record_log_cache_or_repr(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(f"{backend.upper()}_API_KEY", SECRET)
    path = tmp_path / "web.sqlite"
    # A service that says everything that it was told: in its results, and in its errors.
    handlers = [echoes(), *(echoes(status, [("x-echo", SECRET)]) for status in (401, 404, 500)), redirects(SECRET)]
    records = []
    for handler in handlers:
        async with serving(handler) as server:
            web = settings(server.url, backend, cache="read-write", cache_file=path)
            async with Executors(ExecutorSettings(tools=("web",), per_tool={"web": web})) as executors:
                reply = await executors.call(search())
                records.append(reply)
            assert any(SECRET in value for value in server.requests[0].headers.values())
    assert [reply.status for reply in records] == [CallStatus.OK, *[CallStatus.INFRA_FAULT] * 4]
    assert "***" in records[0].record.decode()
    executor = search_executor(settings("http://127.0.0.1:1", backend))
    texts = [repr(records), caplog.text, repr(web), web.model_dump_json(), repr(vars(executor)), str(executor)]
    texts += [repr(vars(executor._source))]
    assert not [text for text in texts if SECRET in text]
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("backend", KEYED)
def test_a_missing_key_is_one_line_with_its_variable(backend: str) -> None:
    for environ in ({}, {f"{backend.upper()}_API_KEY": " "}):
        with pytest.raises(UserError, match=f"set the environment variable {backend.upper()}_API_KEY") as caught:
            search_executor(settings("http://127.0.0.1:1", backend), environ)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("bad", [f"{SECRET}\nx", f"{SECRET} x", f"{SECRET}é", f"{SECRET}\0"])
def test_a_key_that_no_header_holds_is_refused_without_showing_it(bad: str) -> None:
    with pytest.raises(UserError, match="BRAVE_API_KEY holds no key") as caught:
        search_executor(settings("http://127.0.0.1:1", "brave"), {"BRAVE_API_KEY": bad})
    assert SECRET not in str(caught.value)


async def test_a_key_with_a_line_end_behind_it_is_taken_without() -> None:
    async with serving(says(ANSWERS["serper"])) as server:
        executor = search_executor(settings(server.url, "serper"), {"SERPER_API_KEY": f"{SECRET}\n"})
        await executor.start()
        assert (await executor.run(search()))["status"] == "ok"
        await executor.close()
    assert server.requests[0].headers["x-api-key"] == SECRET
