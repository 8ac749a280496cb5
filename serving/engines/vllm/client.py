"""One vLLM server over HTTP: token ids in, token ids and their logprobs out, as they are sampled.

Invariants: an id comes with its logprob or not at all; leaving a stream closes its connection, which is how the server
learns to abort the request; a fault says whether a token had come, because only before that is asking again safe.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from callwright.serving.engines.engine import EngineError

CONNECT_S = 10.0  # for a connection
IDLE_S = 2.0  # of a connection that is used again: vLLM closes one after 5 s, perhaps under the next request
SILENCE_S = 120.0  # between two pieces of a stream, and before its first: a full server lets a request wait
ANSWER_S = 10.0  # for an answer that needs no model
_LOWEST = -9999.0  # what vLLM writes for minus infinity


@dataclass(frozen=True, slots=True)
class Piece:
    """What came at once: ids and as many logprobs, and with the last of them why the server stopped."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str | None


@dataclass(frozen=True, slots=True)
class Card:
    """What a server says of its model: the name that requests must give, and the longest context in tokens."""

    model: str
    context: int


class ServerFault(EngineError):
    """A server failed a request. ``down``: the server may be gone; ``again``: it had not taken the request, so that
    another server, or this one later, may be asked. What it had taken may be what it died of."""

    def __init__(self, cause: str, *, down: bool = False, again: bool = False) -> None:
        super().__init__(cause)
        self.down, self.again = down, again


class VllmClient:
    """Requests to the server at ``url``. Belongs to the event loop that it is first used on."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
            # The pool in front of it knows how many there are.
            limits=httpx.Limits(max_connections=None, keepalive_expiry=IDLE_S),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def healthy(self) -> bool:
        """Whether it answers and its engine lives."""
        try:
            return (await self._http.get("/health", timeout=ANSWER_S)).status_code == 200
        except httpx.HTTPError:
            return False

    async def card(self) -> Card:
        """Raises EngineError where no vLLM server answers."""
        try:
            answer = await self._http.get("/v1/models", timeout=ANSWER_S)
            answer.raise_for_status()
            first = answer.json()["data"][0]
            return Card(str(first["id"]), int(first["max_model_len"]))
        except httpx.HTTPError as error:
            raise EngineError(f"{self.url}: {_cause(error)}") from error
        except (ValueError, LookupError, TypeError):
            raise EngineError(f"{self.url} answers, but not as a vLLM server does") from None

    @asynccontextmanager
    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[Piece]]:
        """The pieces of one completion. Leaving the context aborts what is not finished. Raises ServerFault."""
        try:
            async with self._http.stream("POST", "/v1/completions", json=dict(body)) as answer:
                if answer.status_code != 200:
                    told = _message(await answer.aread())
                    busy = answer.status_code == 503
                    raise ServerFault(f"{self.url}: {answer.status_code} {told}", down=busy, again=busy)
                yield self._pieces(answer)
        except httpx.TimeoutException as error:  # it may still be at work on the request: asking again doubles the load
            raise ServerFault(f"{self.url}: no token within {SILENCE_S:g} s ({_cause(error)})") from error
        except httpx.HTTPError as error:
            refused = isinstance(error, httpx.ConnectError)
            raise ServerFault(f"{self.url}: {_cause(error)}", down=True, again=refused) from error

    async def _pieces(self, answer: httpx.Response) -> AsyncIterator[Piece]:
        async for line in answer.aiter_lines():
            piece = self._piece(line)
            if piece is not None:
                yield piece

    def _piece(self, line: str) -> Piece | None:
        """What one line of the stream says; None for those between the pieces."""
        _, data, text = line.partition("data: ")
        if not data or text == "[DONE]":
            return None
        try:
            told = json.loads(text)
            if "error" in told:
                raise ServerFault(f"{self.url}: {_message(text.encode())}")
            (choice,) = told["choices"]
            ids = tuple(choice["token_ids"] or ())
            logprobs = tuple((choice["logprobs"] or {}).get("token_logprobs") or ())
            finish = choice["finish_reason"]
        except (ValueError, LookupError, TypeError) as error:
            raise ServerFault(f"{self.url}: a piece that is not vLLM's: {text[:200]}") from error
        if len(ids) != len(logprobs) or any(value is None or not _LOWEST < value <= 1e-3 for value in logprobs):
            raise ServerFault(f"{self.url}: {len(ids)} tokens came with the logprobs {list(logprobs)[:8]}")
        return Piece(ids, logprobs, finish)


def _cause(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _message(content: bytes) -> str:
    """The message of an error answer, on one line."""
    try:
        told = json.loads(content)["error"]
        text = str(told["message"] if isinstance(told, dict) else told)
    except (ValueError, LookupError, TypeError):
        text = content.decode(errors="replace")
    return " ".join(text.split())[:500]
