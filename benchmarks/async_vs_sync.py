"""Asynchronous training beside the synchronous order, with a tool whose answers take a heavy-tailed time.

Both sides are the same run of quickstart (model, tasks, updates, batch size); searches take a lognormal time with its
median at 0.2 s and its 99th percentile at 5 s, cut at 8 s, drawn by the search and how often it was asked: both sides
wait for the same draws as long as they search the same. Sides alternate, each pair has a seed of its own. Asynchronous
is ``grpo.asynchronous.max_staleness`` of ``--staleness``; nothing else differs.

``updates_speedup``: synchronous seconds over asynchronous seconds to the same number of updates; evaluations are not
in them, waits and checkpoints are. ``success_speedup``: the same to an equal held-out success, that of the side that
ended lower; checkpoints are evaluated afterwards, with the tool at its own speed, and between two the time is taken in
proportion. Medians over the pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.common import Measured, Row, Spread, progress, run

if TYPE_CHECKING:
    from callwright.serving.protocol import ToolCall
    from callwright.training.config import Config

HEADLINE = ("updates_speedup", "success_speedup")
SIDES = ("synchronous", "asynchronous")
MEDIAN_S, P99_S, LONGEST_S = 0.2, 5.0, 8.0
Curve = list[tuple[float, float]]
"""(seconds since training began, held-out success), from the warm start on."""


def main(argv: Sequence[str] | None = None) -> int:
    # Before torch loads: threads that spin while they wait make a shared machine's timings meaningless.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return run("async_vs_sync", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs, each with a seed of its own")
    parser.add_argument("--steps", type=int, default=24, help="batches; each is used for two updates")
    parser.add_argument("--every", type=int, default=6, help="batches between two points of the success curve")
    parser.add_argument("--prompts", type=int, default=16, help="tasks a batch, eight rollouts each")
    parser.add_argument("--staleness", type=int, default=2, help="grpo.asynchronous.max_staleness")
    parser.add_argument("--eval", type=int, default=256, help="held-out tasks of a point of the curve")
    parser.add_argument("--quick", action="store_true", help="one pair of six small batches, in minutes")


def measure(options: argparse.Namespace) -> Measured:
    if options.quick:
        options.pairs, options.steps, options.every, options.prompts, options.eval = 1, 6, 3, 8, 64
    rows: list[Row] = []
    speedups: dict[str, list[float]] = {name: [] for name in HEADLINE}
    curves: dict[str, list[Curve]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        for pair in range(options.pairs):
            for side in SIDES[:: 1 if pair % 2 == 0 else -1]:
                curve = _curve(options, side, seed=pair)
                curves[side].append(curve)
                shown = ", ".join(f"{success:.3f} at {seconds:.0f} s" for seconds, success in curve)
                progress(f"pair {pair + 1}, {side}: {shown}")
            slow, fast = (curves[side][-1] for side in SIDES)
            target = min(slow[-1][1], fast[-1][1])
            speedups["updates_speedup"].append(slow[-1][0] / fast[-1][0])
            speedups["success_speedup"].append(_reached(slow, target) / _reached(fast, target))
    for side in SIDES:
        ends = [curve[-1] for curve in curves[side]]
        rows.append(Spread.of([seconds for seconds, _ in ends]).row(f"{options.steps} batches", side, "s"))
        rows.append(Spread.of([success for _, success in ends]).row("held-out success then", side, "share"))
    rows += [Spread.of(values).row(name, "synchronous / asynchronous", "x") for name, values in speedups.items()]
    notes = (
        f"batches of {options.prompts} x 8 rollouts, {2 * options.steps} updates, max_staleness {options.staleness}; "
        f"success of {options.eval} tasks, sampled",
    )
    return Measured(rows, {name: statistics.median(values) for name, values in speedups.items()}, notes)


def _curve(options: argparse.Namespace, side: str, seed: int) -> Curve:
    """Train once and evaluate what was saved on the way."""
    from callwright.training.checkpoints import complete
    from callwright.training.run import train

    config = _config(options, side, seed)
    with contextlib.redirect_stdout(sys.stderr):  # tables of runs are no result of this command
        folder = train(config, executors={"web": SlowSearch(config)})
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        times = dict(zip((row["step"] for row in rows), accumulate(row["step_seconds"] for row in rows), strict=True))
        points = [(0.0, _success(options, seed, "quickstart"))]
        points += [(times[step], _success(options, seed, str(path))) for step, path in complete(folder / "checkpoints")]
    return points


def _config(options: argparse.Namespace, side: str, seed: int) -> Config:
    from callwright.training.config import load_config

    words = [
        f"name={side}-{seed}",
        f"seed={seed}",
        f"grpo.steps={options.steps}",
        f"grpo.prompts_per_step={options.prompts}",
        f"checkpoint.every={options.every}",
        "checkpoint.keep=1000",
        "executors.lanes=1024",  # a tool that is waited for must not be waited for in a queue
        "executors.web.workers=1024",
        "eval.n=8",
        "eval.n_slices=0",
        "tracking.wandb=off",
    ]
    if side == "asynchronous":
        words.append(f"grpo.asynchronous.max_staleness={options.staleness}")
    return load_config("quickstart", words)


def _success(options: argparse.Namespace, seed: int, checkpoint: str) -> float:
    from callwright.training.config import load_config
    from callwright.training.run import evaluate

    words = [
        f"seed={seed}",
        f"model.path={checkpoint}",
        f"eval.n={options.eval}",
        "eval.n_slices=0",
        "eval.modes=[sampled]",
    ]
    success: float = evaluate(load_config("quickstart", words))["success"]
    return success


def _reached(curve: Curve, target: float) -> float:
    """When a curve first reached a success, in seconds, in proportion between its points."""
    for (start, low), (end, high) in pairwise(curve):
        if high >= target:
            share = (target - low) / (high - low) if high > low else 0.0
            return start + max(share, 0.0) * (end - start)
    return curve[-1][0]


class SlowSearch:
    """The run's own search, after a wait that the query and its number of earlier askings address."""

    name = "web/slow"

    def __init__(self, config: Config) -> None:
        from callwright.envs.executors.corpus import Corpus
        from callwright.envs.executors.web import CorpusExecutor
        from callwright.envs.tasks.source import open_source

        self._search = CorpusExecutor(Corpus.build(open_source(config.tasks, config.seed).documents()))
        self._asked: Counter[str] = Counter()

    async def start(self) -> None:
        await self._search.start()

    async def run(self, call: ToolCall) -> Any:
        import asyncio

        query = str(call.arguments["q"])
        self._asked[query] += 1
        await asyncio.sleep(latency_s(query, self._asked[query]))
        return await self._search.run(call)

    async def close(self) -> None:
        await self._search.close()


def latency_s(query: str, asked: int) -> float:
    """Seconds of one search: lognormal, addressed, cut at ``LONGEST_S``."""
    from callwright.serving.engines.sampler import address

    draw = (address("latency", query, asked) + 0.5) / 2**63
    sigma = math.log(P99_S / MEDIAN_S) / statistics.NormalDist().inv_cdf(0.99)
    return min(LONGEST_S, MEDIAN_S * math.exp(sigma * statistics.NormalDist().inv_cdf(draw)))


if __name__ == "__main__":
    raise SystemExit(main())
