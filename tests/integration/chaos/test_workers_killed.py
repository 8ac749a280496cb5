"""Workers killed at every step of a call while a run trains with them: it is the run that nobody disturbed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from calls import STEPS as CALL_STEPS
from calls import AtCall
from conftest import Quiet
from lives import PATIENCE_S, Life, living
from run_checks import check_run, learned
from small_run import GENERATIONS, PROMPTS, STEPS, WORDS

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

TOOLS = ("web", "code")
SHARED = ("executors.broker=sqlite", "executors.lease_s=3")


def workers(stack: ExitStack, folder: Path, tool: str, begun: Path) -> Iterator[Life]:
    """One worker after another, each killed at another step; the last one lives."""
    for number, step in enumerate((*CALL_STEPS, None)):
        fate = None if step is None else AtCall(step, begun)
        words = ("worker", tool, *WORDS[1:], *SHARED)
        yield stack.enter_context(living(folder, *words, name=f"{tool}-{number}", fate=fate))


def test_a_run_whose_workers_die_at_every_step_of_a_call_is_the_undisturbed_run(quiet: Quiet, tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    deaths = dict.fromkeys(TOOLS, 0)
    with ExitStack() as stack:
        lines = {tool: workers(stack, folder, tool, run / "before.json") for tool in TOOLS}
        present = {tool: next(line) for tool, line in lines.items()}
        words = (*WORDS, *SHARED, f"executors.external=[{','.join(TOOLS)}]")
        train = stack.enter_context(living(folder, *words))
        closing = time.monotonic() + PATIENCE_S
        while train.running and time.monotonic() < closing:
            for tool, worker in present.items():
                if not worker.running:
                    assert worker.ended() == -signal.SIGKILL, worker.text[-2000:]
                    deaths[tool] += 1
                    present[tool] = next(lines[tool])
            time.sleep(0.02)
        train.well()
        for worker in present.values():
            worker.stop(signal.SIGTERM)
            worker.well()
    assert deaths == dict.fromkeys(TOOLS, len(CALL_STEPS)), "the run ended before every worker had died"
    check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
    assert learned(run) == quiet.learned
