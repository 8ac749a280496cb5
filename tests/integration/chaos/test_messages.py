"""Messages lost, doubled, late and overtaken, on the way to the workers and back, while a run trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Quiet
from lives import living
from meddling import Meddled
from run_checks import check_run, learned
from small_run import GENERATIONS, PROMPTS, STEPS, WORDS

from callwright.training.reward_queue_log import read_reward_queue

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

FEW_LANES = "executors.lanes=4"  # so that a lane is used again, and what comes late meets the next call
LATE = "grpo.faults={delay: exponential, delay_s: 0.1, duplicate: 0.4, reorder: 0.4}"
LOST = "grpo.faults={delay: exponential, delay_s: 0.1, duplicate: 0.2, reorder: 0.2, drop: 0.2}"


@pytest.mark.parametrize("broker", ["memory", "sqlite"])
def test_late_doubled_and_overtaken_messages_change_nothing(broker: str, quiet: Quiet, tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    words = (*WORDS, LATE, FEW_LANES, f"executors.broker={broker}")
    with living(folder, *words, fate=Meddled(duplicate=0.4, delay_s=0.3)) as life:
        life.well()
    run = folder / "runs" / "quickstart"
    check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
    assert learned(run) == quiet.learned
    log = list(read_reward_queue(run))
    assert any(entry["fate"]["duplicated"] for entry in log)
    assert any(entry["fate"]["overtaken"] for entry in log)


def test_lost_messages_are_nobodys_lesson(tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    times = ("executors.queue_s=2", "executors.web.timeout_s=3", "grpo.max_infra_share=1.0")
    words = (*WORDS, LOST, FEW_LANES, "executors.broker=sqlite", *times)
    with living(folder, *words, fate=Meddled(drop=0.1, duplicate=0.2, delay_s=0.2)) as life:
        life.well()
    run = folder / "runs" / "quickstart"
    traces = check_run(run, steps=STEPS, prompts=PROMPTS, generations=GENERATIONS)
    lost = [trace for trace in traces if trace["outcome"] == "infra_fault"]
    assert lost
    assert len(lost) < len(traces)
    for trace in lost:
        assert "s passed while waiting for" in trace["cause"]
    assert "All reward functions returned None" not in life.text  # TRL's word for it, with the whole row
    assert any(entry["fate"]["dropped"] for entry in read_reward_queue(run))
