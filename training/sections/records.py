"""What a run leaves behind: checkpoints, tracking and the merged model."""

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


class Merge(Section):
    """The verb `merge`: a checkpoint as a model folder of its own, as hubs and servers take them."""

    folder: str | None = None
    """Where it is written; null is `runs/NAME/merged/step-N`, or `NAME-merged` here for what no run made."""
