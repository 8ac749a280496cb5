"""A gateway on a real socket, and an engine that recites: what the tests of the gateway share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Completion, Engine, EngineError, FinishReason, Request
from callwright.serving.gateway.app import build_app
from callwright.serving.gateway.plan import Served
from callwright.serving.gateway.server import address, bind, server
from callwright.serving.gateway.settings import GatewaySettings

CONTEXT = 20_000
FAILURE = EngineError("the scripted failure, with a secret in it")


class Reciter:
    """An engine that says what ``answer`` makes of the context's text, token by token in a thread, each with a
    logprob of its own. An answer that is an exception fails the turn. It says that it keeps to grammars; whether the
    answer does is the test's affair."""

    constrains = True

    def __init__(
        self, codec: Codec, answer: Callable[[str], str | Exception], delay: float = 0.0, fails_after: int | None = None
    ) -> None:
        self.codec, self.answer, self.delay, self.fails_after = codec, answer, delay, fails_after
        self.version = 3
        self.requests: list[Request] = []
        self.released: list[str] = []
        self.cancelled = 0
        self._pool = ThreadPoolExecutor(80)

    def open(self, sessions: Iterable[str]) -> None:
        """It waits for nobody."""

    def release(self, session: str) -> None:
        self.released.append(session)

    async def generate(self, request: Request) -> Completion:
        self.requests.append(request)
        left = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._recite, request, left)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            left.set()
            self.cancelled += 1
            raise

    def _recite(self, request: Request, left: threading.Event) -> Completion:
        text = self.answer(self.codec.decode(request.ids))
        if isinstance(text, Exception):
            raise text
        ids: list[int] = []
        reason = FinishReason.LENGTH
        for token in [*self.codec.markers(text), *sorted(self.codec.eos)[:1]]:
            if left.is_set() or len(ids) >= request.max_new_tokens:
                break
            time.sleep(self.delay)
            if len(ids) == self.fails_after:
                raise FAILURE
            ids.append(token)
            if token in request.eos:
                reason = FinishReason.EOS
                break
            watched = request.watch is not None and request.watch[token]
            if watched and request.stop is not None and request.stop(ids):
                reason = FinishReason.STOP
                break
        return Completion(tuple(ids), tuple(-i / 100 for i in range(len(ids))), reason, self.version)


@contextmanager
def gateway(
    engine: Engine,
    codec: Codec,
    dialect: str = "hermes",
    *,
    key: str = "",
    context: int = CONTEXT,
    explain: bool = True,
    **settings: Any,
) -> Iterator[str]:
    """Serve in a thread; gives the base URL. The record is on disk when it is left."""
    served = Served(engine, codec, "tiny", context, dialect, explain)
    running = server(build_app(served, GatewaySettings(port=0, **settings), key))
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            url = address(listener)
            while not running.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield url
        finally:
            running.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive()


def metrics(url: str) -> dict[str, float]:
    """Every sample of /metrics, by its name with labels."""
    text = httpx.get(f"{url}/metrics").text
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
