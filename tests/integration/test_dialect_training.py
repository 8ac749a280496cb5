"""A short training run in the dialects that no shipped model speaks: warm start, real executors, two GRPO updates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from callwright.envs.traces import read_traces
from callwright.serving.protocol import get_dialect
from callwright.training.checkpoints import latest
from callwright.training.config import load_config
from callwright.training.run import train

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# Enough to write calls, right or wrong: look-ups alone, in short words.
SETTINGS = [
    "warm_start.checkpoint=null",
    "warm_start.stages=[{steps: 40, traces: 150, lr: 0.003, muon_lr: 0.02}]",
    "warm_start.batch=8",
    "tasks.families={lookup: {dials: {hops: 1}}}",
    "tasks.world={name_length: 3, small_talk: 0, entities: 300, eval_entities: 50, long_entities: 50}",
    "budgets.invalid_calls=1",
    "grpo.steps=2",
    "grpo.prompts_per_step=4",
    "grpo.num_generations=4",
    "engine.max_batch=16",
    "eval.n=4",
    "eval.n_slices=0",
    "tracking.wandb=off",
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dialect", ["execute", "hermes"])
def test_a_short_run(dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("quickstart", [*SETTINGS, f"dialect={dialect}", f"name={dialect}"])
    run = train(config)

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert math.isfinite(row["loss"])
        assert row["sampling/ratio_error_max"] < 1e-3
        assert row["outcome/infra_fault"] == row["outcome/late"] == 0
    assert json.loads((run / "summary.json").read_text())["updates"] == len(rows) * config.grpo.trl["num_iterations"]

    words = get_dialect(dialect)
    answered = 0
    for trace in [trace for step in range(2) for trace in read_traces(run, f"step-{step:06d}")]:
        for call in trace["calls"]:
            assert json.loads(call["record"])["type"] == call["tool"]
        given = [segment["text"] for segment in trace["segments"][1:] if segment["kind"] == "given"]
        told = len(trace["calls"]) + len(trace["rejections"])
        assert len(given) <= told
        assert all(words.result_open.strip() in text for text in given)
        answered += bool(trace["calls"] and given)
    assert answered > 0  # a call was sampled, run for real, and its result was read

    final = latest(run / "checkpoints")
    assert final is not None
    tokenizer = AutoTokenizer.from_pretrained(final[1])
    for marker in words.markers(None):
        assert len(tokenizer.encode(marker, add_special_tokens=False)) == 1
