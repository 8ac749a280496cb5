"""Two processes over gloo do what one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from distributed_step import LOSSES, step
from two_processes import FSDP2, two_processes

from callwright.envs.tasks.source import open_source
from callwright.serving.models import Loaded, load
from callwright.training.checkpoints import complete
from callwright.training.config import load_config
from callwright.training.weights.tensors import policy_tensors

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("held", ["whole", "sharded"])
def test_a_step_of_two_processes_is_that_of_one(held: str, tiny: Loaded, tmp_path: Path) -> None:
    model = tmp_path / "model"
    tiny.model.save_pretrained(model)
    tiny.tokenizer.save_pretrained(model)
    script = [str(Path(__file__).with_name("distributed_step.py")), str(model), str(tmp_path), held]
    two_processes(*([FSDP2] if held == "sharded" else []), *script, folder=tmp_path)
    first, second = (torch.load(tmp_path / f"moved-{rank}.pt", weights_only=True) for rank in (0, 1))
    for loss in LOSSES:
        alone = step(model, tmp_path / "alone", loss)
        assert alone.norm() > 1e-2, "a step that is nothing proves nothing"
        assert torch.equal(first[loss], second[loss])
        assert float((first[loss] - alone).norm() / alone.norm()) < 1e-4
        ((_, saved),) = complete(tmp_path / loss)
        together = dict(policy_tensors(load(str(saved), device="cpu").model))
        there = torch.cat([together[name].flatten() - old.flatten() for name, old in policy_tensors(tiny.model)])
        assert torch.allclose(there, first[loss])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", [[], ["grpo.asynchronous={max_staleness: 1}"]], ids=["synchronous", "asynchronous"])
def test_the_verb_shares_a_step_out(order: list[str], tmp_path: Path) -> None:
    """Two processes ask the tasks that one would, each once, and write one record."""
    words = [
        "name=shared",
        "model.lora.r=2",
        "grpo.steps=2",
        "grpo.prompts_per_step=4",
        "grpo.num_generations=4",
        "grpo.micro_batch=8",
        "eval.n=7",
        "eval.n_slices=0",
        "checkpoint.every=1",
    ]
    two_processes("-m", "callwright", "train", "quickstart", *words, *order, folder=tmp_path)
    run = tmp_path / "runs" / "shared"
    assert not (tmp_path / "runs" / "shared-old-1").exists()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
    assert json.loads((run / "summary.json").read_text())["updates"] == 4
    assert [step for step, _ in complete(run / "checkpoints")] == [1, 2]

    config = load_config("quickstart")
    for batch in range(2):
        text = (run / "traces" / f"step-{batch:06}.jsonl").read_text()
        tasks = open_source(config.tasks, config.seed).sample("train", 4, "grpo", 4 * batch)
        asked = [json.loads(line)["key"] for line in text.splitlines()]
        assert asked == [task.key for task in tasks for _ in range(4)]
