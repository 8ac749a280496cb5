"""Rollouts with tools: our rollout function beside TRL's own tool loop (``environment_factory``, asynchronous tools).

Both sides replay the same token scripts through the same model in this process, in alternating pairs. The model runs
every forward pass, prefill and decode with its key/value cache; only the sampler's distribution is forced onto the
script (see ``benchmarks.replay.forcing``). A rollout makes 1-4 calls and samples 10-60 tokens a turn. A call sleeps
for its latency and gives a fixed result; the latency belongs to the rollout and the call, so both sides wait for the
same draws. Ours travel through the dispatcher, the memory broker and a worker.

What differs between the sides: nothing in the tokens. TRL renders results through a chat template that writes what
our dialect splices, its parser gets a response template for the same calls, and our closers are end tokens for it;
every run checks that the ids of both sides are equal. TRL is timed over ``_generate`` (rendering, generation, tools),
without its later forward pass for the logprobs that our side returns. Ours forgets its cached keys and values before
every batch, as after an update of the weights.

``speedup_*``: the median over pairs of TRL's seconds over ours. ``engine_share``: sampled tokens a second of four
times as many rollouts, 64 in flight, over the engine's raw decode speed with 64 rows at the same mix of context
lengths, measured just before and after; the prefill of prompts and results counts as loss. ``engine_share_decode``
leaves the prefill out on both sides; ``engine_share_one_batch`` is the first for one batch of 64 rollouts, whose last
rows decode almost alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.common import Measured, Row, Spread, progress, run

if TYPE_CHECKING:
    from benchmarks.replay.scripts import Batch, Latency

HEADLINE = (
    "speedup_at_0s",
    "speedup_at_500ms",
    "speedup_heavy_tail",
    "engine_share",
    "engine_share_decode",
    "engine_share_one_batch",
)
OVER = 4  # rollouts a row, where the batch is to stay full


def main(argv: Sequence[str] | None = None) -> int:
    # Before torch loads, for both sides: threads that spin while they wait make a shared machine's timings meaningless.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return run("rollout_vs_trl", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)


def measure(options: argparse.Namespace) -> Measured:
    """Everything; the shared event loop of our side lives for the whole of it."""
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as scratch:
        return _Comparison(options.rollouts, options.pairs, runner, scratch).measure()


class _Comparison:
    """Both sides, warm, and the rows so far."""

    def __init__(self, rollouts: int, pairs: int, runner: asyncio.Runner, scratch: str) -> None:
        from benchmarks.replay.model import make_shared
        from benchmarks.replay.ours import Ours
        from benchmarks.replay.peer import Peer
        from benchmarks.replay.scripts import make_scripts

        self._pairs, self._runner, self._in_flight = pairs, runner, rollouts
        self._shared = make_shared()
        self._many = make_scripts(self._shared.codec, rollouts * OVER)
        self._scripts = self._many[:rollouts]
        self._peer = Peer(self._shared, self._scripts, scratch)
        self._ours = runner.run(_async(Ours, self._shared, self._scripts, in_flight=rollouts))
        self._full = runner.run(_async(Ours, self._shared, self._many, in_flight=rollouts))
        self._rows: list[Row] = []
        self._tokens: dict[str, str] = {}

    def measure(self) -> Measured:
        tail = {query: seconds for script in self._scripts for query, seconds in script.tail.items()}
        self._pair(0, lambda query: 0.0)  # warm
        try:
            headline = {
                "speedup_at_0s": self._speedup("0 s", lambda query: 0.0),
                **self._shares(),
                "speedup_at_500ms": self._speedup("0.5 s", lambda query: 0.5),
                "speedup_heavy_tail": self._speedup("heavy tail", tail.__getitem__),
            }
        finally:
            self._runner.run(self._ours.close())
            self._runner.run(self._full.close())
        notes = (
            f"{self._in_flight} rollouts, {len(tail)} calls; {'; '.join(self._tokens.values())}; the ids were equal",
            f"heavy tail: lognormal, {_tail(list(tail.values()))}",
        )
        return Measured(self._rows, headline, notes)

    def _pair(self, index: int, latency: Latency) -> tuple[Batch, Batch]:
        """(TRL's, ours); the one that begins changes from pair to pair."""
        if index % 2:
            ours = self._runner.run(self._ours.run(latency))
            return self._check(self._peer.run(latency), ours)
        theirs = self._peer.run(latency)
        return self._check(theirs, self._runner.run(self._ours.run(latency)))

    def _check(self, theirs: Batch, ours: Batch) -> tuple[Batch, Batch]:
        if theirs.ids != ours.ids:
            raise RuntimeError("the two sides did not replay the same ids")
        return theirs, ours

    def _speedup(self, name: str, latency: Latency) -> float:
        batches = []
        for index in range(self._pairs):
            theirs, ours = self._pair(index, latency)
            batches.append((theirs, ours))
            progress(f"latency {name}: pair {index + 1}: TRL {theirs.seconds:.2f} s, ours {ours.seconds:.2f} s")
        case = f"latency {name}"
        ratio = Spread.of([theirs.seconds / ours.seconds for theirs, ours in batches])
        for side, timed in (("TRL", [pair[0] for pair in batches]), ("callwright", [pair[1] for pair in batches])):
            self._tokens[side] = f"{side} sampled {timed[0].sampled} tokens and was given {timed[0].given}"
            self._rows.append(Spread.of([batch.seconds for batch in timed]).row(case, side, "s"))
        self._rows.append(ratio.row(case, "TRL / callwright", "x"))
        return ratio.median

    def _shares(self) -> dict[str, float]:
        from benchmarks.replay.ours import Raw, contexts_in_use

        contexts = contexts_in_use(self._shared, self._scripts, self._runner.run(self._ours.run(lambda query: 0.0)))
        raw = Raw(self._shared, self._many, contexts)
        shares: dict[str, list[float]] = {name: [] for name in HEADLINE if name.startswith("engine")}
        raws, rates = [], []
        try:
            self._runner.run(raw.speed())  # warm
            for index in range(self._pairs):
                around = [self._runner.run(raw.speed())]
                full = self._runner.run(self._full.run(lambda query: 0.0))
                around.append(self._runner.run(raw.speed()))
                one = self._runner.run(self._ours.run(lambda query: 0.0))
                raws.append(statistics.mean(around))
                rates.append(full.sampled / full.seconds)
                shares["engine_share"].append(rates[-1] / raws[-1])
                shares["engine_share_decode"].append(full.sampled / (full.seconds - full.prefill_seconds) / raws[-1])
                shares["engine_share_one_batch"].append(one.sampled / one.seconds / around[-1])
                progress(f"engine: round {index + 1}: raw {raws[-1]:.0f} tokens/s, rollouts {rates[-1]:.0f}")
        finally:
            raw.close()
        self._rows.append(Spread.of(raws).row("engine", f"raw, {self._in_flight} rows", "tokens/s"))
        self._rows.append(Spread.of(rates).row("engine", f"rollouts, {self._in_flight} in flight", "tokens/s"))
        self._rows += [Spread.of(values).row("engine", name, "share") for name, values in shares.items()]
        return {name: Spread.of(values).median for name, values in shares.items()}


async def _async(make: Any, *args: Any, **kwargs: Any) -> Any:
    """Make something that needs a running event loop."""
    return make(*args, **kwargs)


def _tail(draws: list[float]) -> str:
    return f"median {statistics.median(draws):.2f} s, mean {statistics.mean(draws):.2f} s, longest {max(draws):.2f} s"


if __name__ == "__main__":
    raise SystemExit(main())
