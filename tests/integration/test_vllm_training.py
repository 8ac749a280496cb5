"""Training that samples from a real vLLM server: every version is sent and proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from vllm_servers import INSTALLED, SHORT_RUN

from callwright.training.config import load_config
from callwright.training.run import train

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not INSTALLED, reason="needs: make vllm"),
]

WORDS = (*SHORT_RUN, "grpo.micro_batch=16")
LORA = ["model.lora.r=4", "model.lora.target_modules=[q_proj, v_proj, up_proj]", "grpo.trl.learning_rate=0.003"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="whole models"),
        pytest.param(["grpo.asynchronous={max_staleness: 1}"], id="whole models, asynchronously"),
        pytest.param(["engine.vllm.sync=lora", *LORA], id="adapters"),
    ],
)
def test_a_short_run(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(load_config("quickstart", [*WORDS, *words]))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["weights/sent_bytes"] > 0
        assert row["outcome/scored"] + row["outcome/policy_fault"] == 32
    assert rows[0]["sampling/ratio_error_max"] < 1e-2  # its kernels are not the trainer's, its weights are
    ages = [row["staleness/max"] for row in rows]
    assert ages == [0.0, 1.0, 1.0] if any("asynchronous" in word for word in words) else ages == [0.0] * 3
    versions = set()
    for line in (run / "traces").glob("*.jsonl"):
        for trace in map(json.loads, line.read_text().splitlines()):
            if "step" in trace:
                versions |= {part["version"] for part in trace["segments"] if part["kind"] == "sampled"}
    assert max(versions) >= 1
    summary = json.loads((run / "summary.json").read_text())
    assert summary["updates"] == 6
    assert summary["after"]["greedy"]["n_scored"] == 14
