"""A live experiment: two cells train in processes of their own; interrupted, the same command goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GRID = """
name: tiny
at_once: 1
config:
  extends: quickstart
  executors: {queue_s: 4}
  grpo: {steps: 2, prompts_per_step: 4, num_generations: 4, deadline_s: 5, max_infra_share: 1.0}
  eval: {n: 8, n_slices: 0}
  checkpoint: {every: 0}
grid:
  late:
    drop: {grpo.late: drop, grpo.faults: {delay: exponential, delay_s: 0.2, drop: 0.3}}
    zero: {grpo.late: zero, grpo.faults: {delay: exponential, delay_s: 0.2, drop: 0.3}}
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "callwright", "experiment", "tiny.yaml", "--json", "out.json"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def working_below(folder: Path) -> list[int]:
    """The processes whose working directory is in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_however_it_ends_its_running_cells_end_too(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(GRID)
    cells = tmp_path / "runs" / "tiny" / "cells"
    process = start(tmp_path)
    deadline = time.monotonic() + 200
    while not (cells / "drop.seed-0" / "runs").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    assert working_below(cells)
    process.send_signal(number)
    _, errors = process.communicate(timeout=90)
    if number == signal.SIGTERM:  # as at an interrupt
        assert process.returncode == 130, errors.decode()[-2000:]
        assert "goes on" in errors.decode()
    while working_below(cells) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert working_below(cells) == []


@pytest.mark.timeout(900)
def test_an_interrupted_experiment_goes_on_with_the_missing_cells(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(GRID)
    cells = tmp_path / "runs" / "tiny" / "cells"
    process = start(tmp_path)
    deadline = time.monotonic() + 400
    second = cells / "zero.seed-0"
    while not (second / "train.log").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 130, errors.decode()[-2000:]
    assert "goes on" in errors.decode()
    first = cells / "drop.seed-0" / "result.json"
    finished = first.stat().st_mtime_ns
    assert not (second / "result.json").exists()

    process = start(tmp_path)
    _, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors.decode()[-2000:]
    assert first.stat().st_mtime_ns == finished
    report = json.loads((tmp_path / "out.json").read_text())
    drop, zero = report["arms"]["drop"], report["arms"]["zero"]
    assert drop["poisoned"] == 0
    assert drop["outcomes"]["late"] + drop["outcomes"]["infra_fault"] > 0
    assert zero["poisoned"] == zero["outcomes"]["late"] + zero["outcomes"]["infra_fault"] > 0
    for arm in (drop, zero):
        assert arm["reward_queue"]["dropped"] > 0
        assert arm["reward_queue"]["crossed"] == 0
    for name in ("report.md", "learning.png", "shares.png"):
        assert (tmp_path / "runs" / "tiny" / name).stat().st_size > 500
