"""The adapter between TRL's trainer and our rollouts: TRL asks ``GrpoRollouts`` for a batch, trains on it, asks again.

Invariants: batch number ``i`` asks the same tasks whatever happened before, and however many processes share it; a
batch that is mostly infra faults ends the run before any update uses it; what a row brings to the loss (ids, mask,
logprobs, reward) comes from its trajectory alone.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from callwright.envs.evaluate import score
from callwright.envs.rollout_record import Rollout
from callwright.envs.traces import TraceWriter, step_name
from callwright.envs.trajectory import Outcome, Sampled, completion
from callwright.training import processes
from callwright.training.faults import stop_on_faults
from callwright.training.groups import advantages, counts_wrongly, group_stats, spread
from callwright.training.sections.grpo import LatePolicy
from callwright.training.session import Session
from callwright.training.signs import signs
from callwright.training.trace_records import trace_record


@dataclass(frozen=True, slots=True)
class Batch:
    """The rollouts of a batch, group after group, and what its source has to say of it."""

    rows: list[Rollout]
    metrics: Mapping[str, float] = field(default_factory=dict)


class RolloutSource(Protocol):
    """Where batches come from. Version ``v`` of the policy has trained on the batches before ``v``."""

    def take(self, step: int, model: Any) -> Batch:
        """Batch number ``step``, asked for when ``model`` has trained on all before it. Raises RunError."""
        ...

    def close(self) -> None:
        """End what still runs. Safe to repeat."""
        ...


@dataclass(slots=True)
class GrpoRollouts:
    """TRL's ``rollout_func``."""

    source: RolloutSource
    record: BatchRecord

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """This process's share of a batch: ``len(prompts)`` rows in groups; the prompts themselves say nothing. Raises
        RunError."""
        step, started = trainer.rollout_index, time.monotonic()
        batch = self.source.take(step, trainer.model)
        columns, _ = self.record.finish(step, batch, str(trainer.scale_rewards), time.monotonic() - started)
        return columns

    @property
    def last(self) -> dict[str, float]:
        """The last batch's metrics."""
        return self.record.last


@dataclass(slots=True)
class BatchRecord:
    """What becomes of a batch's rollouts: traces, metrics (``last``), columns for a trainer.

    Of several processes each has whole groups; baselines, metrics and traces are those of the whole batch.
    """

    session: Session
    folder: Path
    last: dict[str, float] = field(default_factory=dict)

    def finish(self, step: int, own: Batch, scale: str, seconds: float) -> tuple[dict[str, list[Any]], list[float]]:
        """Record a batch of which these are this process's rows; their columns for TRL, and the advantage of each.
        ``seconds`` is what it took. Raises RunError where too much of the batch failed."""
        grpo = self.session.config.grpo
        batch = Batch(processes.gathered(own.rows), own.metrics)
        rewards = [_counted(row, grpo.late) for row in batch.rows]
        if grpo.permute_rewards:
            rewards = _permuted(rewards, f"{self.session.config.seed}|permute|{step}")
        values = advantages(rewards, grpo.num_generations, scale=scale)
        self._record(step, batch, rewards, values, seconds)
        stop_on_faults(batch.rows, grpo.max_infra_share, self.folder)
        first = processes.rank() * len(own.rows)
        here = slice(first, first + len(own.rows))
        return self._columns(own.rows, rewards[here]), values[here].tolist()

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
        self,
        step: int,
        batch: Batch,
        rewards: Sequence[float | None],
        values: NDArray[np.float64],
        seconds: float,
    ) -> None:
        rows, size = batch.rows, self.session.config.grpo.num_generations
        if processes.is_first():
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
            **signs(rows, rewards, self.session.config.budgets),
            "advantage_std": spread(values, rewards),
            "poisoned": float(
                sum(counts_wrongly(row.outcome, reward) for row, reward in zip(rows, rewards, strict=True))
            ),
            "rollout_seconds": seconds,
            "tool_seconds_mean": sum(row.tool_seconds for row in rows) / len(rows),
            **{f"outcome/{outcome}": float(sum(row.outcome is outcome for row in rows)) for outcome in Outcome},
            **staleness(step, rows),
            **batch.metrics,
        }


def reward_column(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: the rollouts bring their rewards with them; None leaves a row out of its group."""
    return list(reward)


def staleness(step: int, rows: Sequence[Rollout]) -> dict[str, float]:
    """How many batches the policy had trained on since a token was sampled: the mean over tokens, and the most."""
    ages = Counter[int]()
    for row in rows:
        for segment in row.trajectory.segments:
            if isinstance(segment, Sampled):
                ages[step - segment.version] += len(segment.ids)
    mean = sum(age * count for age, count in ages.items()) / max(1, ages.total())
    return {"staleness/mean": mean, "staleness/max": float(max(ages, default=0))}


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
