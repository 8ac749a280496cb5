"""LoRA through PEFT: only adapters train, the checkpoint is an adapter, and a resume goes on from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callwright.training.checkpoints import complete, latest
from callwright.training.config import Config, load_config
from callwright.training.run import evaluate, train

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WORDS = [
    "name=lora",
    "model.lora.r=4",
    "model.lora.dropout=0.1",
    "grpo.trl.gradient_checkpointing=true",
    "model.lora.target_modules=[all-linear]",
    "grpo.steps=2",
    "grpo.prompts_per_step=8",
    "grpo.num_generations=4",
    "grpo.micro_batch=16",
    "eval.n=14",
    "eval.n_slices=0",
    "checkpoint.every=1",
]


def config(*words: str) -> Config:
    return load_config("quickstart", [*WORDS, *words])


@pytest.mark.timeout(300)
def test_adapters_train_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(config())
    assert [step for step, _ in complete(run / "checkpoints")] == [1, 2]
    newest = latest(run / "checkpoints")
    assert newest is not None
    assert (newest[1] / "adapter_model.safetensors").is_file()
    assert not (newest[1] / "model.safetensors").exists()

    # As after a kill during the second step: the newest checkpoint is gone, and so are the results.
    (newest[1] / "COMPLETE").unlink()
    first = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name in ("after.json", "summary.json"):
        (run / name).unlink()
    train(config(), resume=True)
    again = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(again) == 2
    assert again[0] == first[0]
    assert json.loads((run / "summary.json").read_text())["updates"] == 4

    scores = evaluate(config(f"model.path={newest[1]}", "model.lora=null"))
    assert scores["greedy"]["n_scored"] == 14
