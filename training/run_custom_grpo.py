"""The adapter between TRL's trainer and our rollouts: TRL asks ``GrpoRollouts`` for a batch, trains on it, asks again.

Invariants: batch number ``i`` asks the same tasks whatever happened before; a batch that is mostly infra faults ends
the run before any update uses it; what a row brings to the loss (ids, mask, logprobs, reward) comes from its trajectory
alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callwright.envs.batch import Attempt
from callwright.envs.evaluate import score
from callwright.envs.rollout import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.traces import TraceWriter, step_name
from callwright.envs.trajectory import Outcome, completion
from callwright.training.faults import stop_on_faults
from callwright.training.groups import advantages, counts_wrongly, group_stats, has_zero_variance, spread
from callwright.training.in_flight import waves
from callwright.training.reward_queue_log import logged_reward_queue
from callwright.training.sections.grpo import LatePolicy
from callwright.training.session import Session
from callwright.training.trace_records import trace_record


@dataclass(slots=True)
class GrpoRollouts:
    """TRL's ``rollout_func``. ``last`` holds the batch's metrics until the trainer logs them."""

    session: Session
    folder: Path
    last: dict[str, float] = field(default_factory=dict)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """One batch: ``len(prompts)`` rows in groups; the prompts themselves only say how many. Raises RunError."""
        grpo = self.session.config.grpo
        step, started = trainer.rollout_index, time.monotonic()
        training = trainer.model.training
        trainer.model.eval()
        try:
            rows = self._rollouts(step, len(prompts) // grpo.num_generations, trainer.state.global_step)
        finally:
            trainer.model.train(training)
        rewards = [_counted(row, grpo.late) for row in rows]
        if grpo.permute_rewards:
            rewards = _permuted(rewards, f"{self.session.config.seed}|permute|{step}")
        self._record(step, rows, rewards, str(trainer.scale_rewards), time.monotonic() - started)
        stop_on_faults(rows, grpo.max_infra_share, self.folder)
        return self._columns(rows, rewards)

    def _rollouts(self, step: int, groups: int, version: int) -> list[Rollout]:
        session, grpo = self.session, self.session.config.grpo
        session.exact_engine.set_version(version)
        tasks = session.tasks.sample("train", groups, "grpo", step * groups)
        with logged_reward_queue(session.reward_queue, self.folder, step):
            rows = self._run(tasks, f"{session.config.seed}|grpo|{step}")
            if grpo.resample_zero_variance:
                rows = self._resampled(rows, step)
        return rows

    def _run(self, tasks: Sequence[Task], stream: str) -> list[Rollout]:
        grpo = self.session.config.grpo
        attempts = [Attempt(task, sample, stream) for task in tasks for sample in range(grpo.num_generations)]
        deadline_s = grpo.deadline_s
        if grpo.late == "wait":  # every rollout has its own wall clock, which begins with its wave
            deadline_s += waves(self.session.config, len(attempts)) * self.session.config.budgets.wall_s
        return self.session.run(attempts, temperature=grpo.temperature, deadline_s=deadline_s)

    def _resampled(self, rows: list[Rollout], step: int) -> list[Rollout]:
        """Groups that teach nothing are replaced, once, by groups of fresh tasks."""
        size = self.session.config.grpo.num_generations
        starts = [
            at for at in range(0, len(rows), size) if has_zero_variance([r.total_reward for r in rows[at : at + size]])
        ]
        if not starts:
            return rows
        tasks = self.session.tasks.sample("train", len(starts), f"resample-{step}", 0)
        fresh = self._run(tasks, f"{self.session.config.seed}|resample|{step}")
        for index, at in enumerate(starts):
            rows[at : at + size] = fresh[index * size : (index + 1) * size]
        return rows

    def _columns(self, rows: Sequence[Rollout], rewards: Sequence[float | None]) -> dict[str, list[Any]]:
        policy = self.session.policy(1.0)
        filler = next(iter(sorted(policy.codec.eos)), 0)
        columns: dict[str, list[Any]] = {key: [] for key in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
        for row, reward in zip(rows, rewards, strict=True):
            ids, mask, logprobs = (list(part) for part in completion(row.trajectory))
            if not ids:  # it failed before its first token; TRL needs one, and the mask keeps it out of the loss
                ids, mask, logprobs = [filler], [0], [0.0]
            columns["prompt_ids"].append(row.trajectory.prompt_ids or policy.prompt_ids(row.task.question))
            columns["completion_ids"].append(ids)
            columns["logprobs"].append(logprobs)
            columns["env_mask"].append(mask if reward is not None else [0] * len(mask))
        columns["reward"] = list(rewards)
        return columns

    def _record(
        self, step: int, rows: Sequence[Rollout], rewards: Sequence[float | None], scale: str, seconds: float
    ) -> None:
        size = self.session.config.grpo.num_generations
        values = advantages(rewards, size, scale=scale)
        with TraceWriter(self.folder / "traces", step_name(step)) as traces:
            for row, advantage, reward in zip(rows, values, rewards, strict=True):
                codec = self.session.policy(1.0).codec
                traces.write(trace_record(row, codec, step=step, advantage=float(advantage), counted=reward))
        stats, counted = group_stats(rewards, size), score(rows)
        known = [reward for reward in rewards if reward is not None]
        self.last = {
            "reward": sum(known) / len(known) if known else 0.0,
            "success": counted.success,
            "valid_call_rate": counted.valid_call_rate,
            "calls_per_rollout": counted.calls_per_rollout,
            "tokens_per_rollout": counted.tokens_per_rollout,
            "zero_variance_share": stats.zero_variance / stats.groups,
            "advantage_std": spread(values, rewards),
            "poisoned": float(
                sum(counts_wrongly(row.outcome, reward) for row, reward in zip(rows, rewards, strict=True))
            ),
            "rollout_seconds": seconds,
            "tool_seconds_mean": sum(row.tool_seconds for row in rows) / len(rows),
            **{f"outcome/{outcome}": float(sum(row.outcome is outcome for row in rows)) for outcome in Outcome},
        }


def reward_column(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: the rollouts bring their rewards with them; None leaves a row out of its group."""
    return list(reward)


def _counted(row: Rollout, late: LatePolicy) -> float | None:
    """What its group sees of a row: None leaves it out."""
    missing = row.outcome in (Outcome.LATE, Outcome.INFRA_FAULT)
    return 0.0 if missing and late == "zero" else row.total_reward


def _permuted(rewards: Sequence[float | None], address: str) -> list[float | None]:
    """The same rewards in another order; masked rows stay masked."""
    alive = [index for index, reward in enumerate(rewards) if reward is not None]
    shuffled = alive[:]
    random.Random(address).shuffle(shuffled)
    result = list(rewards)
    for target, source in zip(alive, shuffled, strict=True):
        result[target] = rewards[source]
    return result
