"""vLLM servers for the tests: real ones, and one that fails in ways that a real one cannot be made to."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from callwright.serving.engines.vllm.server import ServerProcess, start_server
from callwright.serving.gateway.server import address, bind, server

INSTALLED = (Path(sys.prefix).parent / ".venv-vllm" / ".ready").is_file()
START_S = 280.0  # on a machine that does other things too
# Compiling the model takes minutes on two cores, and changes nothing that is tested.
EAGER = {"enforce-eager": True}
CONTEXT = 512
FLAGS = {
    **EAGER,
    "served-model-name": "policy",
    "max-model-len": CONTEXT,
    "max-num-seqs": 16,
    "dtype": "float32",
    "uvicorn-log-level": "warning",
}
# Keys of a run of three small batches that samples from a server which it starts.
SHORT_RUN = (
    "engine.kind=vllm",
    "engine.vllm.arguments={enforce-eager: true}",
    "engine.max_batch=32",
    "grpo.steps=3",
    "grpo.prompts_per_step=8",
    "grpo.num_generations=4",
    "grpo.deadline_s=200",
    "budgets.wall_s=200",
    "eval.n=14",
    "eval.n_slices=0",
)


@contextmanager
def real(model: str, variables: Mapping[str, str] | None = None, **flags: Any) -> Iterator[ServerProcess]:
    """A server of this model, with these variables in its environment, for as long as the context lasts."""
    process = start_server(model, {**FLAGS, **flags}, deadline_s=START_S, variables=variables)
    try:
        yield process
    finally:
        process.close()


Body = dict[str, Any]
Answer = Callable[[Body], AsyncIterator[str]]


def piece(ids: Sequence[int], logprobs: Sequence[float | None] | None = None, finish: str | None = None) -> str:
    """One line of a stream."""
    given = [-0.5] * len(ids) if logprobs is None else list(logprobs)
    choice = {"token_ids": list(ids), "logprobs": {"token_logprobs": given}, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


async def counting(body: Body) -> AsyncIterator[str]:
    """Tokens 2, 3, 4 ... one by one, to the budget."""
    for number in range(body["max_tokens"]):
        yield piece([2 + number], finish="length" if number + 1 == body["max_tokens"] else None)
    yield "data: [DONE]\n\n"


class Stub:
    """The shape of a vLLM server. ``answer`` makes the stream of each request; an exception breaks the connection off.
    ``status``: of every completion; ``healthy``: what /health says; ``probe``: the logprob of a sure token."""

    def __init__(self, answer: Answer = counting, *, probe: float = 0.0, status: int = 200) -> None:
        self.answer, self.probe, self.status = answer, probe, status
        self.healthy = True
        self.url = ""
        self.bodies: list[Body] = []
        self.open = self.most_open = 0

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        if body["prompt"] == [1] and body["top_k"] == 1:
            return StreamingResponse(_lines([piece([5, 6], [self.probe] * 2, "length")]))
        self.bodies.append(body)
        if self.status != 200:
            return JSONResponse({"error": {"message": "not now"}}, self.status)
        return StreamingResponse(self._counted(body))

    async def _counted(self, body: Body) -> AsyncIterator[str]:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            async for line in self.answer(body):
                yield line
        finally:
            self.open -= 1

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": [{"id": "policy", "max_model_len": 64}]})

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self.healthy else 503)


async def _lines(lines: Sequence[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line
        await asyncio.sleep(0)


@contextmanager
def stub(*servers: Stub) -> Iterator[None]:
    """Serve each on a loopback address of its own, in a thread."""
    if not servers:
        yield
        return
    first, *rest = servers
    app = Starlette(
        routes=[
            Route("/v1/completions", first.completions, methods=["POST"]),
            Route("/v1/models", first.models),
            Route("/health", first.health),
        ]
    )
    running = server(app)
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            first.url = address(listener)
            while not running.started:
                assert thread.is_alive()
                time.sleep(0.01)
            with stub(*rest):
                yield
        finally:
            running.should_exit = running.force_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive()
