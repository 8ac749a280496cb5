"""What does the gateway cost? The same prompts on the bare engine, and as streams of HTTP clients in another process.

Both sample greedily from one model on one engine, so many at a time, and both run to the same number of tokens; the
clients read every chunk. They share this machine's cores with the engine, as agents on a laptop do. The time per token
is that of the whole batch: wall time by all tokens. A repeat runs one after the other, in an order that alternates.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.common import Measured, Spread, progress, run

HEADLINE = ("overhead_share", "concurrent_streams")
WORDS = ("north", "harbour", "seven", "glass", "river", "copper", "winter", "engine")


def _prompt(number: int) -> str:
    return f"{number}: " + " ".join(WORDS[(number + step) % len(WORDS)] for step in range(6))


def _clients(url: str, streams: int, tokens: int, repeat: int) -> int:
    """Runs in a process of its own; returns the tokens that the server says it sampled."""
    import httpx

    async def one(client: httpx.AsyncClient, number: int) -> int:
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": f"{repeat} {_prompt(number)}"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": tokens,
        }
        used = ""
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if '"completion_tokens":' in line:
                    used = line
        return int(used.partition('"completion_tokens":')[2].partition(",")[0])

    async def every() -> int:
        # Without certificates, whose loading would be most of a short run.
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=600, limits=limits, verify=False) as client:
            return sum(await asyncio.gather(*(one(client, number) for number in range(streams))))

    return asyncio.run(every())


async def _bare(engine: Any, codec: Any, streams: int, tokens: int, repeat: int) -> int:
    """The same on the engine alone: prompt ids in, sampled ids out; nothing reads them."""
    from callwright.serving.engines.engine import Request, Sampling

    async def one(number: int) -> int:
        ids = codec.prompt([{"role": "user", "content": f"{repeat} {_prompt(number)}"}])
        session = f"bare-{repeat}-{number}"
        request = Request(
            ids=ids, max_new_tokens=tokens, sampling=Sampling(0.0), key=number, session=session, eos=codec.eos
        )
        done = await engine.generate(request)
        engine.release(session)
        return len(done.ids)

    return sum(await asyncio.gather(*map(one, range(streams))))


@contextmanager
def _serving(engine: Any, codec: Any, context: int, flush_ms: int) -> Iterator[str]:
    from callwright.serving.gateway.app import build_app
    from callwright.serving.gateway.plan import Served
    from callwright.serving.gateway.server import address, bind, server
    from callwright.serving.gateway.settings import GatewaySettings

    settings = GatewaySettings(flush_ms=flush_ms)
    running = server(build_app(Served(engine, codec, "m", context, "hermes", False), settings, key=""))
    with bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not running.started:
                time.sleep(0.01)
            yield address(listener)
        finally:
            running.should_exit = True
            thread.join()


def _seconds(streams: Sequence[int], options: argparse.Namespace) -> dict[int, tuple[list[float], list[float]]]:
    """Per number of streams: milliseconds a token, bare and served, of every repeat."""
    from callwright.serving.engines.transformers_engine import TransformersEngine
    from callwright.serving.models import load
    from callwright.training.checkpoints import resolve_checkpoint

    loaded = load(resolve_checkpoint(options.model), device=options.device)
    # No end token: every stream is as long as every other, on both sides.
    loaded.codec.__dict__["eos"] = frozenset()
    context = options.tokens + 200
    engine = TransformersEngine(loaded.model, rows=max(streams), context=context)
    found: dict[int, tuple[list[float], list[float]]] = {count: ([], []) for count in streams}
    pool = multiprocessing.get_context("spawn").Pool(1)
    try:
        with _serving(engine, loaded.codec, context, options.flush_ms) as url:
            pool.apply(_clients, (url, 2, 4, -1))
            for repeat in range(options.repeats):
                for count in streams:
                    order = (0, 1) if repeat % 2 == 0 else (1, 0)
                    for side in order:
                        begin = time.perf_counter()
                        if side == 0:
                            sampled = asyncio.run(_bare(engine, loaded.codec, count, options.tokens, 2 * repeat))
                        else:
                            sampled = pool.apply(_clients, (url, count, options.tokens, 2 * repeat + 1))
                        taken = time.perf_counter() - begin
                        if sampled != count * options.tokens:
                            raise RuntimeError(f"{sampled} tokens instead of {count * options.tokens}")
                        found[count][side].append(1000 * taken / sampled)
                progress(f"repeat {repeat + 1} of {options.repeats}")
    finally:
        pool.terminate()
        engine.close()
    return found


def measure(options: argparse.Namespace) -> Measured:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    rows = []
    shares: dict[int, float] = {}
    for count, (bare, served) in _seconds(options.streams, options).items():
        over = Spread.of([1 - b / s for b, s in zip(bare, served, strict=True)])
        rows += [
            Spread.of(bare).row(f"{count} streams", "bare engine", "ms a token"),
            Spread.of(served).row(f"{count} streams", "gateway", "ms a token"),
            over.row(f"{count} streams", "overhead", "share of the time"),
        ]
        shares[count] = over.median
    most = max(shares)
    notes = [f"model {options.model}, {options.tokens} tokens a stream, chunks at most every {options.flush_ms} ms"]
    return Measured(rows, {"overhead_share": shares[most], "concurrent_streams": float(most)}, notes)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2", help="what is served: a checkpoint, smollm2 or quickstart")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 64], help="numbers of streams at once")
    parser.add_argument("--tokens", type=int, default=16, help="tokens of a stream")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--flush-ms", type=int, default=25)


def main(argv: Sequence[str] | None = None) -> int:
    return run("gateway", measure, HEADLINE, argv, _options)


if __name__ == "__main__":
    sys.exit(main())
