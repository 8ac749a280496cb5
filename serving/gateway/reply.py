"""One reply over HTTP, whole or in chunks.

Invariants: a client that leaves frees its place in the engine at once; what fails before the first byte has the
vendor's status and body, what fails later is the vendor's last chunk.
"""

from __future__ import annotations

import asyncio
import time

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from callwright.serving.gateway.errors import ApiError, Problem, headers
from callwright.serving.gateway.generate import Gateway
from callwright.serving.gateway.plan import Plan
from callwright.serving.gateway.reading import Piece, Think
from callwright.serving.progress import log
from callwright.serving.wires.base import Json, WireFormat
from callwright.serving.wires.server import Head, StreamWriter, stream_writer
from callwright.serving.wires.server.framing import MEDIA_TYPES, ending, frame


def refusal(fmt: WireFormat, error: ApiError, request_id: str) -> JSONResponse:
    """An answer that is nothing but an error."""
    extra = dict(headers(fmt, request_id))
    return JSONResponse(error.body(fmt, request_id), error.status(fmt), extra)


class Reply(Response):
    """Samples while it is sent. ``array``: Gemini's stream as one JSON array, which is what it sends unasked."""

    def __init__(self, gateway: Gateway, plan: Plan, request_id: str, *, array: bool = False) -> None:
        super().__init__()
        self._gateway, self._plan, self._id, self._array = gateway, plan, request_id, array
        self._fmt = plan.ask.fmt
        head = Head(request_id, gateway.served.name, int(time.time()))
        self._writer: StreamWriter = stream_writer(self._fmt, head)
        self._chunks = 0
        self._started = False  # whether the first bytes are out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._answer(scope, receive, send))
        watch = asyncio.ensure_future(_leaving(receive))
        stopped = False
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            self._plan.left = not work.done()
        except asyncio.CancelledError:  # the server was told to stop and waits no longer: the client is told so
            stopped = True
        for task in (work, watch):
            task.cancel()
        await asyncio.wait({work, watch})
        if stopped:
            await self._fail(ApiError(Problem.BUSY, "The server is shutting down."), scope, receive, send)
        elif not work.cancelled():
            work.result()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        fmt = self._fmt
        try:
            if self._plan.ask.stream:
                await self._stream(send)
                status = 200
            else:
                answer = await self._gateway.run(self._plan)
                self._writer.stop_sequence = answer.stopped_by
                body = self._writer.whole(answer.message, answer.finish, answer.usage, answer.thinking)
                status = 200
                await JSONResponse(body, headers=dict(headers(fmt, self._id)))(scope, receive, send)
        except ApiError as error:
            status = error.status(fmt)
            await self._fail(error, scope, receive, send)
        except Exception as error:  # a fault of ours, which the client must not wait for
            log(f"gateway: {type(error).__name__}: {error}")
            status = internal().status(fmt)
            await self._fail(internal(), scope, receive, send)
        self._gateway.meters.requests.labels(str(fmt), str(status)).inc()

    async def _stream(self, send: Send) -> None:
        async def emit(pieces: list[Piece]) -> None:
            chunks: list[Json] = []
            if not self._started:
                self._started = True
                await send(self._start())
                chunks += self._writer.start()
            for piece in pieces:
                if isinstance(piece, Think):
                    chunks += self._writer.think(piece.text)
                else:
                    chunks += self._writer.text(piece) if isinstance(piece, str) else self._writer.call(piece)
            await self._send(send, chunks)

        answer = await self._gateway.run(self._plan, emit)
        if not self._started:
            await emit([])
        self._writer.stop_sequence = answer.stopped_by
        chunks = self._writer.end(answer.finish, answer.usage)
        if not self._plan.ask.show_usage:
            chunks = [chunk for chunk in chunks if chunk["choices"]]
        await self._send(send, chunks, last=True)

    async def _fail(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        """A status of its own before the first byte, a last chunk behind it."""
        if self._started:
            await self._send(send, [error.chunk(self._fmt, self._chunks)], last=True)
        else:
            await refusal(self._fmt, error, self._id)(scope, receive, send)

    def _start(self) -> Message:
        kind = "application/json" if self._array else MEDIA_TYPES[self._fmt]
        extra = {"content-type": kind, "cache-control": "no-store", **headers(self._fmt, self._id)}
        raw = [(name.encode(), value.encode()) for name, value in extra.items()]
        return {"type": "http.response.start", "status": 200, "headers": raw}

    async def _send(self, send: Send, chunks: list[Json], *, last: bool = False) -> None:
        texts = []
        for chunk in chunks:
            text = frame(self._fmt, chunk)
            if self._array:
                text = ("," if self._chunks else "[") + text.removeprefix("data: ").rstrip()
            texts.append(text)
            self._chunks += 1
        if last:
            texts.append("]" if self._array else ending(self._fmt))
        body = "".join(texts).encode()
        if body or last:
            await send({"type": "http.response.body", "body": body, "more_body": not last})


async def _leaving(receive: Receive) -> None:
    """Returns when the client is gone. The request's body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


def internal() -> ApiError:
    return ApiError(Problem.INTERNAL, "The server failed; its log says why.")


__all__ = ["Reply", "internal", "refusal"]
