"""What does a sandboxed run cost? The warm pool, one cold bubblewrap a run, and a plain subprocess without isolation.

All three run the same ``python3 -c`` programs, two at a time, in turns. The first run of a repeat is not special: the
pool is warm when the clock starts, as it is in training.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.common import Measured, Spread, progress, run
from callwright.envs.executors.sandbox import Limits, SandboxPool
from callwright.envs.executors.sandbox.bubblewrap import SANDBOX_UID, Launcher
from callwright.envs.executors.sandbox.limits import MIB

HEADLINE = ("vs_cold_bwrap", "p50_ms", "p99_ms")
AT_ONCE = 2

RunOne = Callable[[str], Awaitable[bytes]]


def _program(number: int) -> str:
    return f"print(pow({number}, 65537, 2**61 - 1))"


def _process(prefix: Sequence[str], user: int | None) -> RunOne:
    """One new process a run."""

    async def once(source: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *prefix, "python3", "-c", source, stdout=asyncio.subprocess.PIPE, user=user, group=user, cwd="/"
        )
        out, _ = await process.communicate()
        return out

    return once


async def _repeat(once: RunOne, runs: int) -> tuple[float, list[float]]:
    """Runs a second, and the seconds of each."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def timed(number: int) -> float:
        async with gate:
            begin = time.perf_counter()
            out = await once(_program(number))
            taken = time.perf_counter() - begin
        if int(out) != pow(number, 65537, 2**61 - 1):
            raise RuntimeError(f"a run printed {out!r}")
        return taken

    begin = time.perf_counter()
    taken = await asyncio.gather(*(timed(number) for number in range(2, runs + 2)))
    return runs / (time.perf_counter() - begin), taken


async def _measure(runs: int, repeats: int) -> Measured:
    pool = SandboxPool(AT_ONCE, Limits())
    await pool.start()

    async def warm(source: str) -> bytes:
        return (await pool.run(f"python3 -c '{source}'")).stdout

    user = SANDBOX_UID if os.geteuid() == 0 else None
    kinds: dict[str, RunOne] = {
        "warm pool": warm,
        "cold bubblewrap": _process(Launcher.find().wrapper(32 * MIB), user),
        "plain subprocess": _process(["env", "PATH=/usr/bin:/bin"], user),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    try:
        for repeat in range(repeats):
            progress(f"sandbox: repeat {repeat + 1} of {repeats}")
            for name, once in kinds.items():
                rate, taken = await _repeat(once, runs)
                rates[name].append(rate)
                seconds[name] += taken
    finally:
        await pool.close()
    rows = [{"kind": name, **Spread.of(rates[name]).columns("runs_per_s"), **_latency(seconds[name])} for name in kinds]
    ratio = statistics.median(
        ours / cold for ours, cold in zip(rates["warm pool"], rates["cold bubblewrap"], strict=True)
    )
    headline = {"vs_cold_bwrap": ratio, **_latency(seconds["warm pool"])}
    return Measured(
        rows, headline, [f"the pool is {pool.mode}; {AT_ONCE} runs at a time; the ratio is paired by repeat"]
    )


def _latency(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}


def measure(options: argparse.Namespace) -> Measured:
    return asyncio.run(_measure(options.runs, options.repeats))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100, help="runs of each kind in a repeat")
    parser.add_argument("--repeats", type=int, default=5)


def main(argv: Sequence[str] | None = None) -> int:
    return run("sandbox", measure, HEADLINE, argv, _options)


if __name__ == "__main__":
    sys.exit(main())
