"""What the tests of the web tool share: the services' answers, and servers on real sockets that say byte for byte what
a test wants said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from callwright.envs.executors.web import WebSettings
from callwright.serving.protocol.values import ToolCall

# Each service's own answer to a search, with one row more than is asked for.
ROWS = [
    {"title": f"T{i}", "link": f"https://e.org/{i}", "url": f"https://e.org/{i}"}
    | dict.fromkeys(("snippet", "content", "description"), f"text {i}")
    for i in range(4)
]
ANSWERS: dict[str, Any] = {
    "searxng": {"query": "q", "results": ROWS, "unresponsive_engines": [["x", "timeout"]]},
    "brave": {"type": "search", "web": {"type": "search", "results": ROWS}},
    "serper": {"searchParameters": {}, "organic": ROWS},
    "tavily": {"query": "q", "results": ROWS, "response_time": 1.0},
    "retriever": {
        "result": [
            [{"document": {"id": str(i), "contents": f'"T{i}"\ntext {i}'}, "score": 1.0 / (1 + i)} for i in range(4)]
        ]
    },
}
FOUND = [{"title": f"T{i}", "content": f"text {i}", "url": f"https://e.org/{i}"} for i in range(3)]
NOTHING: dict[str, Any] = {
    "searxng": {"results": [], "unresponsive_engines": []},
    "brave": {"type": "search", "query": {}},
    "serper": {"organic": []},
    "tavily": {"results": []},
    "retriever": {"result": [[]]},
}

Handler = Callable[["Got", asyncio.StreamWriter], Awaitable[None]]


def search(q: str = "capital of Norway", k: int = 3) -> ToolCall:
    return ToolCall("web", {"q": q, "k": k})


def settings(url: str, backend: str = "searxng", **fields: Any) -> WebSettings:
    return WebSettings.model_validate({"backend": backend, "url": url, "timeout_s": 20.0, **fields})


@dataclass(frozen=True)
class Got:
    """One request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass
class Served:
    """A running server: its port, what came, how many connections."""

    port: int = 0
    requests: list[Got] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving(
    *handlers: Handler, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Served]:
    """Answers the first request by the first handler, and so on; all later ones by the last."""
    served = Served()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        served.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            got = await _read(reader)
            served.requests.append(got)
            await handlers[min(len(served.requests), len(handlers)) - 1](got, writer)
        writer.close()

    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Got:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, target, _ = first.split(" ")
    return Got(method, target, headers, body)


def says(
    body: bytes | str | Any = b"", status: int = 200, headers: Sequence[tuple[str, str]] = (), kind: str = "text/html"
) -> Handler:
    """A whole answer; what is neither bytes nor text goes as JSON."""
    if not isinstance(body, bytes | str):
        body, kind = json.dumps(body), "application/json"
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(data)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]

    async def handler(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)
        await writer.drain()

    return handler


def echoes(status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Handler:
    """Everything that came, headers too, as the body of an answer in the shape of a search result."""

    async def handler(got: Got, writer: asyncio.StreamWriter) -> None:
        text = json.dumps(dict(got.headers))
        row = {"title": text, "description": text, "snippet": text, "content": text, "url": text, "link": text}
        body = {"type": "search", "web": {"results": [row]}, "organic": [row], "results": [row]}
        await says(body, status, headers)(got, writer)

    return handler


def drips(every_s: float = 0.05, head: bytes = b"HTTP/1.1 200 X\r\ncontent-type: text/html\r\n\r\n") -> Handler:
    """A byte now and then, for ever."""

    async def handler(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(every_s)

    return handler


def raw(data: bytes) -> Handler:
    """These bytes, and the end of the connection."""

    async def handler(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return handler


def redirects(where: str, status: int = 302) -> Handler:
    return says("", status, [("location", where)])


def bomb(megabytes: int) -> Handler:
    """So many megabytes of spaces, packed to about a thousandth."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    packed = b"".join(packer.compress(b" " * 2**20) for _ in range(megabytes)) + packer.flush()
    return says(packed, 200, [("content-encoding", "gzip")])
