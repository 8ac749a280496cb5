"""A deterministic run that is killed and resumed equals one that was never disturbed: ids, rewards and losses."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_checks import learned

from callwright.training.checkpoints import complete

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STEPS = 5
SETTINGS = [
    "deterministic=true",
    f"grpo.steps={STEPS}",
    "grpo.prompts_per_step=6",
    "grpo.num_generations=4",
    "checkpoint.every=1",
    "checkpoint.keep=2",
    "eval.n=8",
    "eval.n_slices=0",
    "engine.max_batch=24",
]


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "callwright", "train", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()[-2000:]


@pytest.mark.timeout(900)
def test_killed_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    finish(start(whole, "quickstart", *SETTINGS))

    process = start(broken, "quickstart", *SETTINGS)
    run = broken / "runs" / "quickstart"
    deadline = time.monotonic() + 240
    while not complete(run / "checkpoints") and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    time.sleep(random.Random().uniform(0.0, 4.0))  # any moment: during a rollout, an update, a save
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert complete(run / "checkpoints"), "it was killed before the first checkpoint"
    assert not (run / "summary.json").exists(), "it ended before it could be killed: give it more steps"

    finish(start(broken, "runs/quickstart", "--resume"))
    assert learned(run) == learned(whole / "runs" / "quickstart")


@pytest.mark.timeout(600)
def test_an_interrupt_saves_the_step_and_can_be_resumed(tmp_path: Path) -> None:
    process = start(tmp_path, "quickstart", *SETTINGS, "checkpoint.every=0")
    run = tmp_path / "runs" / "quickstart"
    deadline = time.monotonic() + 240
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors.decode()[-2000:]
    assert "--resume" in errors.decode()
    assert "Traceback" not in errors.decode()
    saved = complete(run / "checkpoints")
    assert saved
    assert not (run / "summary.json").exists()

    finish(start(tmp_path, "runs/quickstart", "--resume"))
    rows = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert rows == list(range(1, STEPS + 1))
