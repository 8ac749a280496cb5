"""What a batch asks, and how long its groups may take.

Invariant: batch ``step`` asks the same tasks with the same random numbers whenever and in whatever order its groups
run; a group that replaces one which taught nothing has an address of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from callwright.envs.batch import Attempt
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.source import TaskSource
from callwright.training import processes
from callwright.training.config_schema import Config
from callwright.training.groups import has_zero_variance


def group_attempts(config: Config, tasks: TaskSource, step: int, index: int, *, fresh: bool = False) -> list[Attempt]:
    """The attempts of group ``index`` of batch ``step``; ``fresh``: of the group that replaces it."""
    grpo = config.grpo
    if fresh:
        (task,) = tasks.sample("train", 1, f"resample-{step}", index)
    else:
        (task,) = tasks.sample("train", 1, "grpo", step * grpo.prompts_per_step + index)
    stream = f"{config.seed}|{'resample' if fresh else 'grpo'}|{step}"
    return [Attempt(task, sample, stream) for sample in range(grpo.num_generations)]


def own_groups(config: Config) -> range:
    """Which groups of every batch this process rolls out."""
    share = config.grpo.prompts_per_step // processes.count()
    return range(processes.rank() * share, (processes.rank() + 1) * share)


def close_after_s(config: Config, waves: int) -> float:
    """When rollouts that take so many waves are closed, in seconds from their start."""
    grpo = config.grpo
    # To wait is to trust each rollout's own wall clock, which begins with its wave.
    return grpo.deadline_s + (waves * config.budgets.wall_s if grpo.late == "wait" else 0.0)


def teaches_nothing(group: Sequence[Rollout]) -> bool:
    """Whether all surviving rewards of a group are equal."""
    return has_zero_variance([row.total_reward for row in group])
