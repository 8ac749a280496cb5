"""Several servers as one: which of them takes the next request.

Invariants: a request goes to the server with the fewest in flight, and none has more than its limit; a server that
failed is taken for restarted, with the weights that it started with, so it gets requests again only when it is healthy
and those are the current ones; nobody waits longer than ``DOWN_S`` while no server can be asked.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from callwright.serving.engines.engine import EngineError
from callwright.serving.engines.vllm.client import VllmClient

DOWN_S = 60.0  # how long a request waits for any server to come back; a restart of a small model takes about half
PROBE_S = 1.0  # between two looks at a server that failed


@dataclass(slots=True, eq=False)
class Server:
    """One server: ``first`` is the version of the weights that it starts with, ``version`` of those that it has."""

    client: VllmClient
    model: str
    first: int = 0
    version: int = 0
    in_flight: int = 0
    up: bool = True
    cause: str = ""  # why it is not


class Pool:
    """The servers of one engine. Belongs to one event loop. ``ended`` says of a server of ours why its process is gone;
    None while it lives."""

    def __init__(
        self, servers: Sequence[Server], *, limit: int, ended: Callable[[Server], str | None] = lambda _: None
    ) -> None:
        self.servers = tuple(servers)
        self.version = max(server.version for server in servers)
        self._limit = limit
        self._ended = ended
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._none_since: float | None = None  # when the last server that could be asked was lost
        self._probes: set[asyncio.Task[None]] = set()

    def holds(self, version: int, servers: Sequence[Server] | None = None) -> None:
        """Say that these servers (default: all that are up) have the weights of this version, now the current one."""
        self.version = version
        for server in self.servers if servers is None else servers:
            if server.up:
                server.version = version
        self._changed()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Server]:
        """A place at the least loaded server. Raises EngineError when no server came back in time."""
        server = await self._wait()
        try:
            yield server
        finally:
            server.in_flight -= 1
            self._wake()

    def failed(self, server: Server, cause: str) -> None:
        """Take a server out until it is healthy again."""
        if not server.up:
            return
        server.up, server.cause, server.version = False, cause, server.first
        probe = asyncio.get_running_loop().create_task(self._probe(server))
        self._probes.add(probe)
        probe.add_done_callback(self._probes.discard)
        self._changed()

    async def close(self) -> None:
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)

    async def _probe(self, server: Server) -> None:
        while (ended := self._ended(server)) is None:
            if await server.client.healthy():
                server.up, server.cause = True, ""
                self._changed()
                return
            await asyncio.sleep(PROBE_S)
        server.cause = ended
        self._changed()

    async def _wait(self) -> Server:
        while True:
            usable = self._usable()
            free = min(usable, key=lambda server: server.in_flight, default=None)
            if free is not None and free.in_flight < self._limit:
                free.in_flight += 1
                return free
            patience = None if usable else self._patience()
            if patience is not None and patience <= 0:
                self._give_up()
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(patience):
                    await waiter
            except TimeoutError:
                continue
            except asyncio.CancelledError:
                if not waiter.cancelled():  # it was this one's turn: the next one's now
                    self._wake()
                raise

    def _usable(self) -> list[Server]:
        usable = [server for server in self.servers if server.up and server.version == self.version]
        self._none_since = None if usable else (self._none_since or time.monotonic())
        return usable

    def _patience(self) -> float:
        """Seconds that a request still waits for a server; none where the process of each is known to be gone."""
        if all(self._ended(server) for server in self.servers):
            return 0.0
        return DOWN_S - (time.monotonic() - (self._none_since or 0.0))

    def _give_up(self) -> NoReturn:
        states = [f"{server.client.url}: {server.cause or self._behind(server)}" for server in self.servers]
        raise EngineError(f"no vLLM server can be asked; {'; '.join(states)}")

    def _behind(self, server: Server) -> str:
        return f"it has the weights of version {server.version}, not {self.version}"

    def _changed(self) -> None:
        """Everybody who waits looks again: at another server, or how long to wait for one."""
        self._usable()
        while self._waiting:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
