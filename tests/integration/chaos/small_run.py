"""The run that chaos befalls: the shipped small model, deterministic, a few batches of sixteen rollouts."""

from __future__ import annotations

STEPS, PROMPTS, GENERATIONS = 4, 4, 4
WORDS = (
    "train",
    "quickstart",
    "deterministic=true",
    f"grpo.steps={STEPS}",
    f"grpo.prompts_per_step={PROMPTS}",
    f"grpo.num_generations={GENERATIONS}",
    "checkpoint.every=1",
    "eval.n=4",
    "eval.n_slices=0",
    "engine.max_batch=16",
    "tracking.wandb=off",
    # A machine that is busy with something else must not be taken for a broken one.
    "grpo.deadline_s=300",
    "budgets.wall_s=240",
    "executors.queue_s=120",
)
