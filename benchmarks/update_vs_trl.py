"""The update of a GRPO step: ours beside TRL's own, on the same multi-turn groups of 8 rollouts.

Both sides get the same rows (``benchmarks.update.rows``), one micro-batch, and run in programs of their own
(``benchmarks.update.step``), one step at a time in alternating pairs. TRL's side is its GRPOTrainer as it comes: its
batch is padded to the longest row, each row has its own copy of the prompt, and on a CPU its fused head computes the
logits of every position.

``speedup``: the median over pairs of TRL's processor seconds over ours, of the 135M model, ``speedup_tiny`` of the
tiny one. Processor time, because a shared machine's clock says more about the others; the wall time stands beside it.
``memory_ratio``: our peak above weights and optimizer over TRL's, of the 135M model. ``relative_gradient_error``: the
worst over TRL's loss types, of the tiny model in float32, with importance ratios from 0.5 to 2.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.common import Measured, Row, Spread, progress, run
from benchmarks.update.step import Side, Step

HEADLINE = ("speedup", "speedup_tiny", "memory_ratio", "relative_gradient_error")
SIDES = ("TRL", "callwright")
Pair = tuple[Step, Step]


def main(argv: Sequence[str] | None = None) -> int:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return run("update_vs_trl", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="pairs of steps of the tiny model")
    parser.add_argument("--large-repeats", type=int, default=3, help="pairs of steps of SmolLM2-135M")


def measure(options: argparse.Namespace) -> Measured:
    """Errors first: what is fast and wrong need not be timed."""
    from benchmarks.update.gradients import relative_errors

    with tempfile.TemporaryDirectory() as folder:
        errors = relative_errors("tiny", Path(folder))
    tiny, large = _together("tiny", options.repeats), _apart("smollm2", options.large_repeats)
    rows = [Spread.of([error]).row("tiny", f"gradient error, {loss}", "share") for loss, error in errors.items()]
    headline = {
        "speedup": _speedup(large).median,
        "speedup_tiny": _speedup(tiny).median,
        "memory_ratio": _memory(large).median,
        "relative_gradient_error": max(errors.values()),
    }
    notes = (f"smollm2: {len(large)} pairs, and each step is the first of its program",)
    return Measured([*rows, *_rows("tiny", tiny), *_rows("smollm2", large)], headline, notes)


def _together(model: str, repeats: int) -> list[Pair]:
    """Both sides' programs stay up, and their first step does not count."""
    with ExitStack() as stack:
        sides = {name: stack.enter_context(Side(name, model)) for name in SIDES}
        for side in sides.values():
            side.step()
        return [_pair(model, index, lambda name: sides[name].step()) for index in range(repeats)]


def _apart(model: str, repeats: int) -> list[Pair]:
    """A program a step, so that only one side's weights are in memory."""

    def step(name: str) -> Step:
        with Side(name, model) as side:
            return side.step()

    return [_pair(model, index, step) for index in range(repeats)]


def _pair(model: str, index: int, step: Callable[[str], Step]) -> Pair:
    """(TRL's, ours); the one that begins changes from pair to pair."""
    order = SIDES if index % 2 == 0 else SIDES[::-1]
    steps = {name: step(name) for name in order}
    for name in order:
        progress(
            f"{model}, pair {index + 1}: {name} {steps[name].processor_s:.1f} s, {steps[name].peak / 2**20:.0f} MiB"
        )
    return steps["TRL"], steps["callwright"]


def _rows(model: str, pairs: Sequence[Pair]) -> list[Row]:
    rows = []
    for name, steps in zip(SIDES, zip(*pairs, strict=True), strict=True):
        rows += [
            Spread.of([step.processor_s for step in steps]).row(model, f"{name}, processor", "s"),
            Spread.of([step.wall_s for step in steps]).row(model, f"{name}, wall", "s"),
            Spread.of([step.peak / 2**20 for step in steps]).row(model, f"{name}, peak", "MiB"),
        ]
    wall = Spread.of([theirs.wall_s / ours.wall_s for theirs, ours in pairs])
    return [
        *rows,
        _speedup(pairs).row(model, "TRL / callwright, processor", "x"),
        wall.row(model, "TRL / callwright, wall", "x"),
        _memory(pairs).row(model, "callwright / TRL, peak", "x"),
    ]


def _speedup(pairs: Sequence[Pair]) -> Spread:
    return Spread.of([theirs.processor_s / ours.processor_s for theirs, ours in pairs])


def _memory(pairs: Sequence[Pair]) -> Spread:
    return Spread.of([ours.peak / theirs.peak for theirs, ours in pairs])


if __name__ == "__main__":
    raise SystemExit(main())
