"""Scores a run's traces again under other rewards, group sizes and queue faults: no model, no queue, no waiting.

A lost record makes its rollout lost; delays add to the recorded seconds, and past the deadline the rollout is late.
Duplicates and overtaking act through the queue itself, so only live cells can have them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from callwright.envs.rewards import evidence_of
from callwright.envs.traces import Trace, read_traces
from callwright.envs.trajectory import Outcome
from callwright.serving.errors import UserError
from callwright.serving.queues.faults import FaultSettings, fate
from callwright.training.config import Config
from callwright.training.groups import advantages, counts_wrongly, group_stats, spread

Row = dict[str, float]


def rescore(config: Config, run: Path) -> list[Row]:
    """One row of metrics a step of the run. Raises UserError where the traces cannot give it."""
    faults, size = config.grpo.faults or FaultSettings(), config.grpo.num_generations
    if faults.duplicate or faults.reorder:
        raise UserError("grpo.faults: duplicate and reorder act through the queue: leave rescore out to train live")
    steps: dict[int, dict[str, list[Trace]]] = defaultdict(lambda: defaultdict(list))
    for trace in read_traces(run, "step-*"):
        if trace["outcome"] is None:
            raise UserError(f"{run}: {trace['key']} was not graded, so there is nothing to score again")
        steps[trace["step"]][trace["key"]].append(trace)
    return [_step(step, groups, config, faults, size) for step, groups in sorted(steps.items())]


def _step(step: int, groups: dict[str, list[Trace]], config: Config, faults: FaultSettings, size: int) -> Row:
    # A task drawn twice in a step gives twice the rows under one key: they are cut into groups all the same.
    chosen: list[Trace] = []
    for rows in groups.values():
        chosen += rows[: len(rows) - len(rows) % size]
    if not chosen:
        raise UserError(f"grpo.num_generations {size} is more than the recorded groups have")
    outcomes = [_outcome(trace, config, faults) for trace in chosen]
    rewards = [_reward(trace, outcome, config) for trace, outcome in zip(chosen, outcomes, strict=True)]
    values = advantages(rewards, size, scale=str(config.grpo.trl.get("scale_rewards", "group")))
    known = [reward for reward in rewards if reward is not None]
    stats = group_stats(rewards, size)
    alive = [trace["success"] for trace, outcome in zip(chosen, outcomes, strict=True) if outcome.in_baseline]
    return {
        "step": step + 1,
        "rows": len(chosen),
        "reward": float(np.mean(known)) if known else 0.0,
        "success": float(np.mean(alive)) if alive else 0.0,
        "zero_variance_share": stats.zero_variance / stats.groups,
        "advantage_std": spread(values, rewards),
        "poisoned": float(sum(counts_wrongly(o, r) for o, r in zip(outcomes, rewards, strict=True))),
        **{f"outcome/{outcome}": float(outcomes.count(outcome)) for outcome in Outcome},
    }


def _outcome(trace: Trace, config: Config, faults: FaultSettings) -> Outcome:
    """How the recorded rollout would have ended behind this queue."""
    outcome = Outcome(trace["outcome"])
    if not outcome.in_baseline:
        return outcome
    calls: Sequence[Any] = trace["calls"]
    where = f"{trace['step']}|{trace['key']}|{trace['sample']}"
    fates = [fate(faults, config.seed, f"{where}|{number}") for number in range(len(calls))]
    if any(one.dropped for one in fates):
        return Outcome.INFRA_FAULT
    seconds = trace["seconds"] + sum(one.delay_s for one in fates)
    limit = config.budgets.wall_s if config.grpo.late == "wait" else config.grpo.deadline_s
    return Outcome.LATE if faults.delay_s and seconds > limit else outcome


def _reward(trace: Trace, outcome: Outcome, config: Config) -> float | None:
    if outcome.in_baseline:
        return sum(config.reward.function().parts(evidence_of(trace), trace["success"]).values())
    return 0.0 if config.grpo.late == "zero" and outcome is not Outcome.CANCELLED else None
