"""A short, real GRPO run, through TRL and the real executors, that must learn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callwright.training.config import load_config
from callwright.training.run import train

pytestmark = pytest.mark.integration

SECRET = "planted-7f3a9c"


@pytest.mark.timeout(420)
def test_a_short_run_learns_to_call_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    words = ["grpo.steps=8", "eval.n=210", "eval.n_slices=0", "checkpoint.every=0"]
    run = train(load_config("quickstart", words))
    summary = json.loads((run / "summary.json").read_text())

    before, after = summary["before"]["sampled"], summary["after"]["sampled"]
    assert after["success"] >= before["success"] + 0.1
    assert after["calls_per_rollout"] > before["calls_per_rollout"]
    assert after["valid_call_rate"] >= 0.95
    assert after["n_scored"] == after["n_total"] == 210
    assert summary["outcomes"]["infra_fault"] == summary["outcomes"]["late"] == 0
    assert summary["updates"] == 16
    # Two families of eight need no call; the other answers are random, and without a call there is nothing to know.
    assert summary["closed_book"]["after"] <= 0.35
    assert (run / "figures" / "success.png").stat().st_size > 10_000
    for file in run.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), (
            f"a secret of the environment is in {file}"
        )
