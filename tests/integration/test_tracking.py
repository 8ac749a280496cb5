"""wandb beside a run: without a key it records offline, for real, and never asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from callwright.training.config import load_config
from callwright.training.tracking import open_tracker

pytestmark = pytest.mark.integration


def test_without_a_key_the_metrics_are_recorded_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    tracker = open_tracker(load_config("quickstart", ["name=tracked"]), tmp_path)
    tracker.log(1, {"reward": 0.28125})
    tracker.log(2, {"reward": 0.53125})
    tracker.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    recorded = file.read_bytes()  # protobuf records in a log that wandb has no reader for; values are JSON text
    for piece in (b"tracked", b"reward", b"0.28125", b"0.53125"):
        assert piece in recorded


def test_off_leaves_nothing(tmp_path: Path) -> None:
    tracker = open_tracker(load_config("quickstart", ["tracking.wandb=off"]), tmp_path)
    tracker.log(1, {"reward": 0.25})
    tracker.close()
    assert not list(tmp_path.iterdir())
