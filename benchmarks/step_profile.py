"""Where the processor time of one GRPO step goes: rollouts with tools through the broker, then the update.

The second step of a config, the quickstart's by default, is run under Python's profiler, every thread with one of its
own and its own processor clock, so that waiting costs nothing. The time of a function in C is its caller's. Profiled,
Python is dearer than it is, and tensor operations are as they are, so what is ours is rather overstated.

Headline: the shares are of the engine's time, which is that of sampling (the engine's thread, without what it calls of
the parser and the tokenizer); ``largest_share`` is that of the largest part of ours.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import Measured, Row, progress, run

if TYPE_CHECKING:
    from callwright.training.config import Config

HEADLINE = ("queue", "event_loop", "parser", "validator", "tokenizer", "other_python", "largest_share")
# A file belongs to the first part that names a piece of its path; what no line names is a library.
PARTS = (
    ("validator", ("callwright/serving/protocol/validation", "protocol/strict_json", "protocol/schema")),
    ("parser", ("callwright/serving/protocol/", "callwright/serving/turn")),
    ("queue", ("callwright/serving/queues/", "executors/command_queue")),
    ("event_loop", ("/asyncio/", "/selectors")),
    ("tokenizer", ("callwright/serving/engines/codec", "/transformers/tokenization", "/tokenizers/")),
    ("update", ("callwright/training/update/", "training/trainer", "training/microbatches", "/trl/", "/accelerate/")),
    ("engine", ("callwright/serving/engines/",)),
    ("other_python", ("callwright/",)),
)
TENSORS = ("/torch/", "/transformers/", "/numpy/")  # the engine's in its thread, else the update's
ENGINE_THREAD = "callwright-engine"
Profiles = list[tuple[str, cProfile.Profile]]


def main(argv: Sequence[str] | None = None) -> int:
    # One thread of computation, whose processor time its caller sees.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    return run("step_profile", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", default="quickstart", help="whose model and tasks; stages of a warm start are left out"
    )
    parser.add_argument("--prompts", type=int, default=16, help="tasks in the step")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to the config")


def measure(options: argparse.Namespace) -> Measured:
    """Two steps; the time of the second, sorted into parts."""
    from callwright.training.config import load_config

    words = [
        "name=profile",
        "warm_start.stages=[]",
        f"grpo.prompts_per_step={options.prompts}",
        "grpo.steps=2",
        "checkpoint.every=0",
    ]
    words += ["grpo.deadline_s=600", "budgets.wall_s=600"]  # a busy machine and the profiler make it slow
    words += options.set
    with tempfile.TemporaryDirectory() as folder, _every_thread() as profiles:
        seconds = _second_step(load_config(options.config, words), Path(folder), profiles)
    engine = seconds["engine"]
    shares = {part: seconds.get(part, 0.0) / engine for part in HEADLINE if part in dict(PARTS)}
    rows: list[Row] = [
        {"part": part, "processor_s": spent, "of_the_engine": spent / engine}
        for part, spent in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    notes = (f"{options.config}, {options.prompts} tasks; the profiler is on; update and library are not among ours",)
    return Measured(rows, {**shares, "largest_share": max(shares.values())}, notes)


@contextmanager
def _every_thread() -> Iterator[Profiles]:
    """Every thread that starts within has a profile of its own, from its first call on."""
    profiles: Profiles = []

    def begin(*_: Any) -> None:
        profile = cProfile.Profile(timer=time.thread_time)
        profiles.append((threading.current_thread().name, profile))
        profile.enable()  # in the place of this function

    threading.setprofile(begin)
    try:
        yield profiles
    finally:
        threading.setprofile(None)


def _second_step(config: Config, folder: Path, profiles: Profiles) -> dict[str, float]:
    """Seconds by part, from the end of the first step, which loads and makes things, to that of the second."""
    from callwright.training.grpo import build_trainer
    from callwright.training.interrupt import graceful_interrupt
    from callwright.training.run_custom_grpo import BatchRecord, GrpoRollouts
    from callwright.training.served import ServedPolicy
    from callwright.training.session import open_session
    from callwright.training.synchronous import SynchronousRollouts
    from callwright.training.warm_start import warm_start

    ends: list[dict[str, float]] = []

    def at_the_end(step: int, row: dict[str, float]) -> None:
        progress(f"step {step}: {row['rollout_seconds']:.1f} of {row['step_seconds']:.1f} s were rollouts")
        ends.append(_by_part(profiles))

    with (
        open_session(config) as session,
        graceful_interrupt() as interrupt,
        closing(ServedPolicy(session, folder)) as served,
    ):
        loaded = warm_start(session, folder)
        served.start(loaded)
        rollouts = GrpoRollouts(SynchronousRollouts(session, served, folder), BatchRecord(session, folder))
        trainer = build_trainer(config, folder, loaded.model, loaded.tokenizer, rollouts, at_the_end, interrupt)
        served.train(loaded, trainer.model)
        profile = cProfile.Profile(timer=time.thread_time)
        profiles.append((threading.current_thread().name, profile))
        profile.runcall(trainer.train)
    first, second = ends
    return {part: seconds - first.get(part, 0.0) for part, seconds in second.items()}


def _by_part(profiles: Profiles) -> dict[str, float]:
    """Seconds so far; those of a function in C, which has no file, are its caller's."""
    spent: dict[str, float] = defaultdict(float)
    for thread, profile in profiles:
        for entry in profile.getstats():
            if not isinstance(entry.code, str):
                in_c = sum(call.inlinetime for call in entry.calls or () if isinstance(call.code, str))
                spent[_part(entry.code.co_filename, thread)] += entry.inlinetime + in_c
    return spent


def _part(file: str, thread: str) -> str:
    for part, marks in PARTS:
        if any(mark in file for mark in marks):
            return part
    if any(mark in file for mark in TENSORS):
        return "engine" if thread == ENGINE_THREAD else "update"
    return "library"


if __name__ == "__main__":
    raise SystemExit(main())
