"""A GRPO step on given rollouts, by as many processes as it was started with: a program, and a function.

Each process brings its share of the rows, in order, and writes how far the weights moved; with the word "sharded" it
also makes sure that it holds a part of each alone.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.distributed.tensor import DTensor
from trl import GRPOConfig

from callwright.serving.models import load
from callwright.training.trainer import ToolGRPOTrainer
from callwright.training.weights.tensors import policy_tensors

GROUP, ROWS = 4, 16
LOSSES = ("dapo", "grpo")
DEAD = (1, 2, 3)  # rows that count nowhere, all in the first half


@dataclass(frozen=True)
class Share:
    """A rollout function: the rows that belong to this process."""

    first: int

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {key: [] for key in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
        rewards: list[float | None] = []
        for index in range(self.first, self.first + len(prompts)):
            rng, group = random.Random(index), random.Random(-1 - index // GROUP)
            mask = [1] * rng.randrange(2, 8) + [0] * rng.randrange(4) + [1] * rng.randrange(1, 9)
            dead = index in DEAD
            columns["prompt_ids"].append([group.randrange(20, 300) for _ in range(group.randrange(3, 9))])
            columns["completion_ids"].append([rng.randrange(20, 300) for _ in mask])
            columns["logprobs"].append([rng.uniform(-3.0, -1.0) for _ in mask])
            columns["env_mask"].append([0] * len(mask) if dead else mask)
            rewards.append(None if dead else rng.random())
        return {**columns, "reward": rewards}


def reward_column(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    return list(reward)


def step(model: Path, folder: Path, loss: str, sharded: bool = False) -> torch.Tensor:
    """How one step of plain gradient descent moves the weights, as one vector."""
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    loaded = load(str(model), device="cpu")
    before = _weights(loaded.model)
    arguments = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=ROWS // world,
        num_generations=GROUP,
        max_completion_length=32,
        max_steps=1,
        loss_type=loss,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = ToolGRPOTrainer(
        model=loaded.model,
        args=arguments,
        processing_class=loaded.tokenizer,
        reward_funcs=reward_column,
        train_dataset=Dataset.from_dict({"prompt": [""] * ROWS}),
        rollout_func=Share(rank * ROWS // world),
        checkpoints=folder / loss,
    )
    trainer.train()
    assert all(isinstance(weight, DTensor) is sharded for weight in trainer.model.parameters())
    trainer.save_now()
    return _weights(trainer.model) - before


def _weights(model: Any) -> torch.Tensor:
    return torch.cat([tensor.flatten() for _, tensor in policy_tensors(model)])


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    moved = {loss: step(source, target, loss, "sharded" in sys.argv) for loss in LOSSES}
    torch.save(moved, target / f"moved-{os.environ['RANK']}.pt")
