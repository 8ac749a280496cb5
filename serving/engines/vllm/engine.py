"""The engine over vLLM servers: one turn is one streamed completion of token ids.

Invariants: everything runs in a thread of its own, off the caller's event loop; logprobs are those of the distribution
that was sampled from (each server proves it before it is used); a request is sent again only where no server had taken
it, so a turn is one server's draw or an EngineError, never a stretch of two. Draws are addressed by the request's key
and the length of its context, but a server's sums depend on what else is in its batch: the same seed may differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from callwright.serving.background_loop import BackgroundLoop
from callwright.serving.engines.engine import Completion, EngineError, EngineStats, FinishReason, Request, Sampling
from callwright.serving.engines.sampler import address
from callwright.serving.engines.vllm.client import ServerFault, VllmClient
from callwright.serving.engines.vllm.pool import Pool, Server
from callwright.serving.engines.vllm.sampled import Sampled
from callwright.serving.engines.vllm.server import ServerProcess
from callwright.serving.wires.base import WireFormat

ATTEMPTS = 3  # at one request, where servers do not take it
START_S = 60.0  # for the first answers of servers that are up
_PROBE_TOKENS = 8


class VllmEngine:
    """Token in, token out, over the servers at ``urls``.

    ``in_flight``: requests open at one server at once; ``process``: the server that was started for this engine, if one
    was: it ends with it. Raises EngineError where a server cannot be used.
    """

    tool_wire_format: ClassVar[WireFormat] = WireFormat.HERMES  # what a model here says is text
    constrains: ClassVar[bool] = True  # a request's grammar holds

    def __init__(self, urls: Sequence[str], *, in_flight: int, process: ServerProcess | None = None) -> None:
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._process = process
        self._closed = False
        self._turns: set[asyncio.Task[Any]] = set()
        self.stats = EngineStats(extra={"dropped_tokens": 0, "requests_sent_again": 0})
        self._loop = BackgroundLoop("callwright-vllm")
        try:
            self._pool, self.context = self._loop.run(self._join(urls, in_flight))
        except BaseException:
            self._loop.close()
            raise

    @property
    def version(self) -> int:
        return self._pool.version

    def holds(self, version: int, url: str, model: str | None = None) -> None:
        """Say that the server at ``url`` has the weights of this version, now the current one; from now on its policy
        has the name ``model`` there. A turn in flight goes on with them."""
        self._loop.run(self._holds(version, url.rstrip("/"), model))

    def open(self, sessions: Iterable[str]) -> None:
        """Turns here wait for nobody."""

    def release(self, session: str) -> None:
        """Nothing is kept for a session: the server's prefix cache finds its own way."""

    async def generate(self, request: Request) -> Completion:
        if not request.ids:
            raise ValueError("a turn needs at least one token of context")
        room = min(request.max_new_tokens, self.context - len(request.ids))
        if room <= 0:
            return Completion((), (), FinishReason.LENGTH, self.version)
        if self._closed:
            raise EngineError("the engine is closed")
        return await asyncio.wrap_future(self._loop.submit(self._generate(request, room)))

    def close(self) -> None:
        """Abort what is in flight, and stop the server that was started. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        self._loop.run(self._leave())
        self._loop.close()
        if self._process is not None:
            self._process.close()

    async def _join(self, urls: Sequence[str], in_flight: int) -> tuple[Pool, int]:
        clients = [VllmClient(url) for url in urls]
        try:
            async with asyncio.timeout(START_S):
                cards = [await client.card() for client in clients]
                servers = [Server(client, card.model) for client, card in zip(clients, cards, strict=True)]
                for server in servers:
                    await _prove_logprobs(server)
        except BaseException as error:
            for client in clients:
                await client.close()
            if isinstance(error, TimeoutError):
                raise EngineError(f"{', '.join(urls)}: no first tokens within {START_S:g} s") from error
            raise
        return Pool(servers, limit=in_flight, ended=self._ended), min(card.context for card in cards)

    def _ended(self, server: Server) -> str | None:
        return None if self._process is None else self._process.ended()

    async def _holds(self, version: int, url: str, model: str | None) -> None:
        servers = [server for server in self._pool.servers if server.client.url == url]
        for server in servers:
            server.model = model or server.model
        self._pool.holds(version, servers)

    async def _leave(self) -> None:
        for turn in self._turns:
            turn.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)
        await self._pool.close()
        for server in self._pool.servers:
            await server.client.close()

    async def _generate(self, request: Request, room: int) -> Completion:
        turn = asyncio.current_task()
        assert turn is not None
        self._turns.add(turn)
        try:
            return await self._attempts(request, room)
        except asyncio.CancelledError:
            if self._closed:  # nobody cancelled the turn: the engine went away under it
                raise EngineError("the engine is closed") from None
            raise
        finally:
            self._turns.discard(turn)

    async def _attempts(self, request: Request, room: int) -> Completion:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._attempt(request, room)
            except ServerFault as fault:
                if not fault.again:
                    raise
                self.stats.extra["requests_sent_again"] += 1
        return await self._attempt(request, room)

    async def _attempt(self, request: Request, room: int) -> Completion:
        async with self._pool.place() as server:
            sampled = Sampled(request, room)
            try:
                reason = await self._take(server, sampled, _body(request, room, server))
            except ServerFault as fault:
                if fault.down:
                    self._pool.failed(server, str(fault))
                raise
            finally:
                self.stats.sampled_tokens += len(sampled)
                self.stats.extra["dropped_tokens"] += sampled.dropped
        self.stats.prefill_tokens += len(request.ids)
        return sampled.completion(reason)

    async def _take(self, server: Server, sampled: Sampled, body: dict[str, Any]) -> FinishReason:
        async with server.client.stream(body) as pieces:
            async for piece in pieces:
                reason = sampled.add(piece, server.version)
                if reason is None:
                    continue
                if piece.finish is not None:  # the last line is on its way, and then the connection serves again
                    async for _ in pieces:
                        pass
                return reason
        raise ServerFault(f"{server.client.url}: the stream ended within the turn", down=True)


def _body(request: Request, room: int, server: Server) -> dict[str, Any]:
    """Every field that changes the distribution is said, so that no default of a server's can."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": server.model,
        "prompt": list(request.ids),
        "max_tokens": room,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "watermarking": False,
        "seed": address(request.key, len(request.ids)),
        "ignore_eos": True,  # the policy's end tokens are these, whatever the model's files say
        "stop_token_ids": sorted(request.eos),
        "logprobs": 0,  # of the sampled token alone
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "stream": True,
        "cache_salt": f"weights-{server.version}",  # keys and values of other weights are never read
    }
    if request.grammar is not None:
        body["structured_outputs"] = {"grammar": request.grammar}
    return body


async def _prove_logprobs(server: Server) -> None:
    """With ``top_k`` 1 there is one token to sample, so its logprob is 0, unless the server tells the model's own."""
    request = Request([1], _PROBE_TOKENS, Sampling(1.0, top_k=1), key=0, session="probe")
    logprobs: list[float] = []
    async with server.client.stream(_body(request, _PROBE_TOKENS, server)) as pieces:
        async for piece in pieces:
            logprobs += piece.logprobs
    if not logprobs or any(abs(logprob) > 1e-5 for logprob in logprobs):
        raise EngineError(
            f"{server.client.url} does not tell the logprobs of what it samples from: start it with "
            "--logprobs-mode processed_logprobs"
        )
