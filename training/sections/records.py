"""What a run leaves behind: checkpoints and tracking."""

from __future__ import annotations

from typing import Literal

from callwright.training.sections.base import Count, Positive, Section


class Checkpoint(Section):
    """Checkpoints in runs/NAME/checkpoints."""

    every: Count = 10
    """GRPO steps between checkpoints; 0 keeps only the last."""
    keep: Positive = 2
    """Checkpoints that stay; older ones are removed."""


class Tracking(Section):
    """Weights & Biases, beside the metrics.jsonl that every run has."""

    wandb: Literal["auto", "off"] = "auto"
    """`auto` syncs where WANDB_API_KEY is set and records offline elsewhere; the variable WANDB_MODE overrules both."""
    project: str = "callwright"
    """Project name."""
    rollouts: Count = 8
    """Rollouts, each of another task, in the table that every tenth step leaves there; 0 leaves none."""
