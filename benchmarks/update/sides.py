"""A trainer of each side over the same rows: TRL's GRPOTrainer as it comes, and ours, which is a subclass of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from benchmarks.replay.model import make_shared
from benchmarks.replay.scripts import GROUP
from benchmarks.update.rows import Row, make_rows
from callwright.serving.models import Loaded, load
from callwright.training.trainer import ToolGRPOTrainer

MAX_COMPLETION = 900
LEARNING_RATE = 1e-6


@dataclass(frozen=True, slots=True)
class Size:
    """What one model trains on: ``groups`` of 8 rollouts of up to ``turns`` turns, as one micro-batch."""

    groups: int
    turns: int


SIZES = {"tiny": Size(groups=4, turns=5), "smollm2": Size(groups=1, turns=2)}


def load_model(name: str) -> Loaded:
    """``tiny``, freshly made, or what ``load`` takes."""
    if name != "tiny":
        return load(name, device="cpu")
    shared = make_shared()
    return Loaded(shared.model, shared.tokenizer, shared.codec)


def make_trainer(side: str, name: str, folder: Path, **settings: Any) -> tuple[Any, list[Row]]:
    """The side's trainer with a model of its own, and the rows of its batch; ``settings`` go to GRPOConfig."""
    loaded, size = load_model(name), SIZES[name]
    rows = make_rows(loaded.codec, size.groups, size.turns)
    arguments = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=len(rows),
        num_generations=GROUP,
        max_completion_length=MAX_COMPLETION,
        learning_rate=LEARNING_RATE,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        **settings,
    )
    common: dict[str, Any] = {
        "model": loaded.model,
        "args": arguments,
        "processing_class": loaded.tokenizer,
        "reward_funcs": _reward,
        "train_dataset": Dataset.from_dict({"prompt": [""] * len(rows)}),
        "rollout_func": _Replay(rows),
    }
    ours = side == "callwright"
    trainer = ToolGRPOTrainer(**common, checkpoints=folder / "checkpoints") if ours else GRPOTrainer(**common)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer, rows


@dataclass(frozen=True, slots=True)
class _Replay:
    """TRL's ``rollout_func``: the rows as they are."""

    rows: Sequence[Row]

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        return {
            "prompt_ids": [row.prompt for row in self.rows],
            "completion_ids": [row.ids for row in self.rows],
            "logprobs": [[0.0] * len(row.ids) for row in self.rows],
            "env_mask": [row.mask for row in self.rows],
            "reward": [row.reward for row in self.rows],
        }


def _reward(reward: Sequence[float], **_: Any) -> list[float]:
    return list(reward)
