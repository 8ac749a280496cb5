"""Evaluation: the same rollouts as training, counted.

Invariants: success is over rows that were scored or failed by the policy's fault; an infra fault is never a wrong
answer; ``n_scored`` of ``n_total`` says how many rows the figure stands on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from callwright.envs.rollout_record import Rollout


@dataclass(frozen=True, slots=True)
class Score:
    """What a set of rollouts came to. Shares lie in 0-1; ``interval`` is Wilson's at 95 %."""

    success: float
    interval: tuple[float, float]
    valid_call_rate: float
    n_scored: int
    n_total: int
    families: dict[str, float]
    calls_per_rollout: float
    tokens_per_rollout: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "success": self.success,
            "interval": list(self.interval),
            "valid_call_rate": self.valid_call_rate,
            "n_scored": self.n_scored,
            "n_total": self.n_total,
            "families": self.families,
            "calls_per_rollout": self.calls_per_rollout,
            "tokens_per_rollout": self.tokens_per_rollout,
        }


def score(rollouts: Sequence[Rollout]) -> Score:
    """Count a set of finished rollouts."""
    counted = [r for r in rollouts if r.outcome.in_baseline]
    families: dict[str, list[bool]] = defaultdict(list)
    for r in counted:
        families[r.task.family].append(r.success)
    successes = sum(r.success for r in counted)
    return Score(
        success=_share(successes, len(counted)),
        interval=wilson(successes, len(counted)),
        valid_call_rate=valid_call_rate(counted),
        n_scored=len(counted),
        n_total=len(rollouts),
        families={name: _share(sum(values), len(values)) for name, values in sorted(families.items())},
        calls_per_rollout=_share(sum(len(r.calls) for r in counted), len(counted)),
        tokens_per_rollout=_share(sum(r.trajectory.sampled_tokens for r in counted), len(counted)),
    )


def valid_call_rate(rollouts: Iterable[Rollout]) -> float:
    """Calls that the validator accepted over calls that were attempted; 1.0 where none was."""
    rows = list(rollouts)
    valid = sum(len(r.calls) for r in rows)
    refused = sum(len(r.rejections) + r.violations for r in rows)
    return valid / (valid + refused) if valid + refused else 1.0


def wilson(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % score interval of a proportion (Wilson, 1927); (0, 1) for no rows."""
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def pass_at_k(successes: int, n: int, k: int) -> float:
    """The chance that one of ``k`` draws from ``n`` samples succeeds (Chen et al., 2021, HumanEval, eq. 1)."""
    if n - successes < k:
        return 1.0
    miss = 1.0
    for i in range(n - successes + 1, n + 1):
        miss *= 1 - k / i
    return 1 - miss


def pass_rates(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """pass@k for k = 1, 2, 4, ... up to the samples that every task has; empty for single samples."""
    by_task: dict[str, list[bool]] = defaultdict(list)
    for r in rollouts:
        if r.outcome.in_baseline:
            by_task[r.task.key].append(r.success)
    fewest = min(map(len, by_task.values()), default=0)
    rates: dict[str, float] = {}
    k = 1
    while fewest > 1 and k <= fewest:
        rates[str(k)] = sum(pass_at_k(sum(row), len(row), k) for row in by_task.values()) / len(by_task)
        k *= 2
    return rates


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
