"""Does a rollout cost the same among two thousand as among eight, and a token the same at 32k as at 1k?

An engine that recites its turns at once stands in for the model, so that all the time is that of the rollout function,
the stream parser, the queues and the executors: the real ones, with the real search. Rollouts start together, as a
batch of training does. Time is that of the processor, all threads of the process together: nothing here waits for
anything else, and other programs of the machine do not count. Memory is traced in a run of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.common import Measured, Spread, progress, run
from callwright.envs.batch import Arena, Attempt, run_batch
from callwright.envs.budgets import Budgets
from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Completion, FinishReason, Request
from callwright.serving.protocol import WEB, ToolCall, get_dialect

HEADLINE = ("time_ratio_2048_vs_8", "memory_bytes_per_rollout", "length_ratio_32k_vs_1k")
IN_FLIGHT = (8, 64, 512, 2048)
TOKENS = (1024, 4096, 16384, 32768)
TURNS = 3  # of a rollout where the number in flight grows: two calls and the answer
LANES = 64
DEADLINE_S = 3600.0  # nothing is to end for lack of time, however busy the machine
QUESTION = "What is the code of BCDF?"
ANSWER = "481"
DOCUMENTS = [("BCDF", "the owner of BCDF is GHJK. the code of BCDF is 481."), ("GHJK", "the code of GHJK is 77.")]
SEARCH = ToolCall("web", {"q": "BCDF", "k": 1})


class Reciter:
    """An engine that writes the same call every turn, and the answer in the last one; the parser reads token by token.

    ``most`` is how many sessions were open at once, at most.
    """

    version = 0

    def __init__(self, codec: Codec, turns: int) -> None:
        dialect = get_dialect("tags")
        self._turns = [codec.markers("<think>look it up</think>" + dialect.render_call(SEARCH))] * (turns - 1)
        self._turns.append(codec.markers(dialect.render_solution(ANSWER)))
        self._said: dict[str, int] = {}
        self.most = 0

    def open(self, sessions: Iterable[str]) -> None:
        """All of a batch wait for a turn together."""

    async def generate(self, request: Request) -> Completion:
        number = self._said.get(request.session, 0)
        self._said[request.session] = number + 1
        self.most = max(self.most, len(self._said))
        await asyncio.sleep(0)  # so that the whole batch is under way
        ids: list[int] = []
        for token in self._turns[number]:
            ids.append(token)
            if request.watch is not None and request.watch[token] and request.stop is not None and request.stop(ids):
                break
        return Completion(tuple(ids), (-0.1,) * len(ids), FinishReason.STOP)

    def release(self, session: str) -> None:
        self._said.pop(session, None)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that ended: ``seconds`` of the processor and of the clock. ``size``: what the memory tracer
    saw at its peak, in bytes; 0 where it was off."""

    seconds: float
    wall: float
    rollouts: Sequence[Rollout]
    size: int


async def _batch(codec: Codec, rollouts: int, turns: int, traced: bool) -> Batch:
    """Raises RuntimeError when one was lost or was not all in flight."""
    engine = Reciter(codec, turns)
    budgets = Budgets(
        turn_tokens=512, policy_tokens=2**20, context=2**20, calls=turns, invalid_calls=0, wall_s=DEADLINE_S
    )
    settings = ExecutorSettings(tools=("web",), lanes=LANES, lease_s=DEADLINE_S)
    async with Executors(settings, documents=DOCUMENTS) as executors:
        episode = partial(executors.episode, lambda tool: DEADLINE_S)
        policy = Policy(engine, codec, (WEB,), system_prompt=False)
        arena = Arena(policy, episode, grade, budgets, in_flight=rollouts)
        attempts = [Attempt(Task(f"t/{n}", "lookup", QUESTION, ANSWER), 0, "growth") for n in range(rollouts)]
        gc.collect()
        if traced:
            tracemalloc.start()
        started, wall = time.process_time(), time.perf_counter()
        done = await run_batch(attempts, arena, deadline_s=DEADLINE_S)
        seconds, wall = time.process_time() - started, time.perf_counter() - wall
        size = tracemalloc.get_traced_memory()[1] if traced else 0
        tracemalloc.stop()
    lost = [row for row in done if row.outcome is not Outcome.SCORED or not row.success]
    if len(done) != rollouts or lost or engine.most != rollouts:
        why = lost[0].trajectory.cause if lost else f"{engine.most} in flight"
        raise RuntimeError(f"of {rollouts} rollouts {len(done)} ended, {len(lost)} of them not scored: {why}")
    return Batch(seconds, wall, done, size)


def _several(batch: Callable[[], Batch], times: int) -> Batch:
    """As one: smaller batches are repeated, so that every point is about as much work."""
    batches = [batch() for _ in range(times)]
    return replace(batches[0], seconds=sum(one.seconds for one in batches), wall=sum(one.wall for one in batches))


def _in_flight(codec: Codec, sizes: Sequence[int], repeats: int) -> tuple[list[dict[str, Any]], dict[int, float]]:
    """Rows, and milliseconds a rollout by how many are in flight."""
    rows, cost = [], {}
    for size in sizes:
        progress(f"growth: {size} in flight")
        again = max(1, sizes[-1] // size // 8)

        def once(traced: bool = False, size: int = size) -> Batch:
            return asyncio.run(_batch(codec, size, TURNS, traced))

        peak = once(traced=True).size  # and everything is warm
        taken = [_several(once, again) for _ in range(repeats)]
        spread = Spread.of([each.seconds / (again * size) * 1000 for each in taken])
        wall = Spread.of([each.wall / (again * size) * 1000 for each in taken]).median
        cost[size] = spread.median
        rows.append({"case": f"{size} in flight", **spread.columns("ms"), "wall_ms": wall, "peak_bytes": peak})
    return rows, cost


def _lengths(codec: Codec, lengths: Sequence[int], repeats: int) -> tuple[list[dict[str, Any]], dict[int, float]]:
    """Rows, and microseconds a token by a trajectory's length."""
    short, longer = (asyncio.run(_batch(codec, 1, turns, False)).rollouts[0] for turns in (TURNS, TURNS + 1))
    first = len(short.trajectory.ids)
    a_turn = len(longer.trajectory.ids) - first
    rows, cost = [], {}
    for length in lengths:
        progress(f"growth: {length} tokens")
        turns = max(TURNS, round((length - first) / a_turn) + TURNS)
        again = max(1, lengths[-1] // length // 2)

        def once(turns: int = turns) -> Batch:
            return asyncio.run(_batch(codec, 1, turns, False))

        taken = [_several(once, again) for _ in range(repeats)]
        tokens = len(taken[0].rollouts[0].trajectory.ids)
        spread = Spread.of([each.seconds / (again * tokens) * 1e6 for each in taken])
        cost[length] = spread.median
        rows.append({"case": f"{tokens} tokens, {turns} turns", **spread.columns("us_a_token")})
    return rows, cost


def measure(options: argparse.Namespace) -> Measured:
    from transformers import AutoTokenizer

    from callwright.training.checkpoints import WARM_STARTS

    codec = Codec(AutoTokenizer.from_pretrained(WARM_STARTS / "quickstart"))
    sizes = [size for size in IN_FLIGHT if size <= options.most]
    rows, times = _in_flight(codec, sizes, options.repeats)
    lengths = [length for length in TOKENS if length <= options.longest]
    more, tokens = _lengths(codec, lengths, options.repeats)
    peaks = {size: row["peak_bytes"] for size, row in zip(sizes, rows, strict=True)}
    headline = {
        "time_ratio_2048_vs_8": times[sizes[-1]] / times[sizes[0]],
        "memory_bytes_per_rollout": (peaks[sizes[-1]] - peaks[sizes[0]]) / (sizes[-1] - sizes[0]),
        "length_ratio_32k_vs_1k": tokens[lengths[-1]] / tokens[lengths[0]],
    }
    notes = [f"{TURNS} turns a rollout with {LANES} lanes; ratios of the time of one rollout, and of one token"]
    if (sizes[-1], lengths[-1]) != (IN_FLIGHT[-1], TOKENS[-1]):
        notes.append(f"a short run: the ratios are those of {sizes[-1]} rollouts and of {lengths[-1]} tokens")
    return Measured([*rows, *more], headline, notes)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=int, default=IN_FLIGHT[-1], help="rollouts in flight, at most")
    parser.add_argument("--longest", type=int, default=TOKENS[-1], help="tokens of a trajectory, at most")


def main(argv: Sequence[str] | None = None) -> int:
    return run("growth", measure, HEADLINE, argv, _options)


if __name__ == "__main__":
    sys.exit(main())
