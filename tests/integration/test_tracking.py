"""wandb beside a run: without a key it records offline, for real, and never asks."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from callwright.envs.traces import TraceWriter, step_name
from callwright.serving.errors import RunError
from callwright.training.config import load_config
from callwright.training.tracking import COLUMNS, open_tracker

pytestmark = pytest.mark.integration


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)


def write_batch(folder: Path, step: int, groups: int = 3, size: int = 8) -> None:
    with TraceWriter(folder / "traces", step_name(step)) as traces:
        for group in range(groups):
            for sample in range(size):
                traces.write(
                    {
                        "key": f"lookup/train/{step}/{group}",
                        "family": "lookup",
                        "outcome": "scored",
                        "sample": sample,
                        "question": f"where is {group}?",
                        "counted": 0.1 * group,
                        "segments": [{"kind": "given", "text": "where"}, {"kind": "sampled", "text": " sämpled"}],
                        "calls": [{}] * group,
                    }
                )


@pytest.mark.usefixtures("offline")
def test_without_a_key_the_metrics_and_rollouts_are_recorded_offline(tmp_path: Path) -> None:
    for step in range(2):
        write_batch(tmp_path, step)
    with open_tracker(load_config("quickstart", ["name=tracked", "tracking.rollouts=2"]), tmp_path) as tracker:
        tracker.log(1, {"reward": 0.28125})
        tracker.log(2, {"reward": 0.53125})
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    recorded = file.read_bytes()  # protobuf records in a log that wandb has no reader for; values are JSON text
    for piece in (b"tracked", b"reward", b"0.28125", b"0.53125"):
        assert piece in recorded
    (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/rollouts_*.table.json")
    found = json.loads(table.read_text())
    assert found["columns"] == list(COLUMNS)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in found["data"]]
    assert [row["key"] for row in rows] == ["lookup/train/0/0", "lookup/train/0/1"]
    assert rows[1] == {
        "step": 1,
        "key": "lookup/train/0/1",
        "outcome": "scored",
        "reward": 0.1,
        "advantage": None,
        "calls": 1,
        "question": "where is 1?",
        "solution": None,
        "cause": None,
        "text": "where sämpled",
    }


@pytest.mark.usefixtures("offline")
def test_a_failed_run_is_closed_and_its_metrics_are_there(tmp_path: Path) -> None:
    config = load_config("quickstart", ["tracking.rollouts=0"])

    def fail() -> None:
        with open_tracker(config, tmp_path) as tracker:
            tracker.log(1, {"reward": 0.28125})
            raise RunError("it failed")

    with pytest.raises(RunError):
        fail()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert b"0.28125" in file.read_bytes()
    assert not list(tmp_path.glob("wandb/offline-run-*/files/media"))


def test_off_leaves_nothing(tmp_path: Path) -> None:
    with open_tracker(load_config("quickstart", ["tracking.wandb=off"]), tmp_path) as tracker:
        tracker.log(1, {"reward": 0.25})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_on_a_terminal_without_a_key_it_is_one_line_and_no_prompt(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from callwright.serving.errors import UserError
from callwright.training.config import load_config
from callwright.training.tracking import open_tracker
try:
    with open_tracker(load_config("quickstart"), Path.cwd()):
        print("no error")
except UserError as error:
    print("refused:", error)
"""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    terminal, end = pty.openpty()  # wandb asks for a key where its input is a terminal
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**kept, "WANDB_MODE": "online", "HOME": str(tmp_path)},
            stdin=end,
            stdout=subprocess.PIPE,
            stderr=end,
            timeout=120,
            text=True,
            check=False,
        )
    finally:
        os.close(end)
        os.close(terminal)
    assert done.stdout.startswith("refused: tracking.wandb: ")
    assert "WANDB_MODE=offline" in done.stdout
