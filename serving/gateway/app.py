"""The HTTP face: routes, the key, the body, and errors in the shape of the vendor whose address was called.

Invariants: no route but ``/healthz`` answers without the key, where one is set; a body is never read beyond its limit;
nothing escapes as another shape than the vendor's.
"""

from __future__ import annotations

import hmac
import os
from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.gateway.generate import Gateway
from callwright.serving.gateway.intake import read_ask, read_json, streamed
from callwright.serving.gateway.meters import Meters
from callwright.serving.gateway.plan import Plan, Served
from callwright.serving.gateway.recorder import Recorder
from callwright.serving.gateway.reply import Reply, internal, refusal
from callwright.serving.gateway.settings import GatewaySettings
from callwright.serving.progress import log
from callwright.serving.wires.base import WireFormat

SETTLE_S = 5.0
LONG_BODY = 64 * 1024
KEY_VARIABLE = "CALLWRIGHT_API_KEY"
_GEMINI_CALLS = {"generateContent": False, "streamGenerateContent": True}

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Door:
    """What every route needs."""

    gateway: Gateway
    key: str

    def admit(self, request: Request) -> None:
        """Raises ApiError without the key. Each vendor's client sends it in its own header."""
        if not self.key:
            return
        header = request.headers.get
        bearer = header("authorization", "").removeprefix("Bearer ").strip()
        given = bearer or header("x-api-key") or header("x-goog-api-key") or request.query_params.get("key") or ""
        if not hmac.compare_digest(given.encode(), self.key.encode()):
            raise ApiError(Problem.KEY, "Incorrect API key provided." if given else "No API key provided.")

    async def body(self, request: Request) -> bytes:
        limit = self.gateway.settings.max_body_kb * 1024
        message = f"The body of a request is at most {limit} bytes."
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > limit:
            raise ApiError(Problem.TOO_LARGE, message)
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > limit:
                raise ApiError(Problem.TOO_LARGE, message)
        return bytes(data)

    def route(self, fmt: WireFormat) -> Endpoint:
        async def answer(request: Request) -> Response:
            request_id = os.urandom(12).hex()
            try:
                self.admit(request)
                wants = self._gemini(request) if fmt is WireFormat.GEMINI else None
                data = await self.body(request)
                # A long conversation takes a while to encode, and the streams of others must not wait for it.
                here = len(data) < LONG_BODY
                plan = self._plan(fmt, data, wants) if here else await to_thread(self._plan, fmt, data, wants)
                array = wants is True and request.query_params.get("alt") != "sse"
                return Reply(self.gateway, plan, request_id, array=array)
            except ApiError as error:
                found = error
            except Exception as error:
                log(f"gateway: {type(error).__name__}: {error}")
                found = internal()
            self.gateway.meters.requests.labels(str(fmt), str(found.status(fmt))).inc()
            return refusal(fmt, found, request_id)

        return answer

    def _plan(self, fmt: WireFormat, data: bytes, stream: bool | None) -> Plan:
        ask = read_ask(fmt, read_json(data), self.gateway.settings)
        return self.gateway.plan(ask if stream is None else streamed(ask, stream))

    def _gemini(self, request: Request) -> bool:
        name, _, call = request.path_params["call"].rpartition(":")
        if not name or call not in _GEMINI_CALLS:
            raise ApiError(Problem.NOT_FOUND, f"{request.url.path[:200]} is not found.")
        return _GEMINI_CALLS[call]

    async def metrics(self, request: Request) -> Response:
        try:
            self.admit(request)
        except ApiError as error:
            return refusal(WireFormat.OPENAI, error, "")
        return Response(self.gateway.meters.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        try:
            self.admit(request)
        except ApiError as error:
            return refusal(WireFormat.OPENAI, error, "")
        model = {"id": self.gateway.served.name, "object": "model", "created": 0, "owned_by": "callwright"}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self.gateway.served.name})


async def _elsewhere(request: Request, error: Exception) -> Response:
    """No such address, or no such method there."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    problem = {404: Problem.NOT_FOUND, 405: Problem.METHOD}.get(status, Problem.INTERNAL)
    path = request.url.path
    fmt = WireFormat.ANTHROPIC if path.startswith("/v1/messages") else WireFormat.OPENAI
    fmt = WireFormat.GEMINI if path.startswith("/v1beta/") else WireFormat.OLLAMA if path.startswith("/api/") else fmt
    return refusal(
        fmt, ApiError(problem, f"{request.method} {path[:200]}: there is nothing here"), os.urandom(12).hex()
    )


def build_app(served: Served, settings: GatewaySettings, key: str | None = None) -> Starlette:
    """The application. ``key``: the bearer key; None takes the environment's. Raises UserError for a record folder that
    cannot be made."""
    recorder = None if settings.record is None else Recorder(Path(settings.record), served.codec)
    gateway = Gateway(served, settings, Meters(), recorder)
    door = _Door(gateway, os.environ.get(KEY_VARIABLE, "") if key is None else key)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await gateway.idle(within=SETTLE_S)  # replies that were cut off have yet to say so in the record
            if recorder is not None:
                recorder.close()

    post = ["POST"]
    routes = [
        Route("/v1/chat/completions", door.route(WireFormat.OPENAI), methods=post),
        Route("/v1/responses", door.route(WireFormat.RESPONSES), methods=post),
        Route("/v1/messages", door.route(WireFormat.ANTHROPIC), methods=post),
        # Both versions of Gemini's address: its client's default has changed between releases.
        Route("/v1beta/models/{call}", door.route(WireFormat.GEMINI), methods=post),
        Route("/v1/models/{call}", door.route(WireFormat.GEMINI), methods=post),
        Route("/api/chat", door.route(WireFormat.OLLAMA), methods=post),
        Route("/v1/models", door.models),
        Route("/metrics", door.metrics),
        Route("/healthz", door.health),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _elsewhere}, lifespan=lifespan)
