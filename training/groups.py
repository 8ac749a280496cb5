"""Group arithmetic without torch: baselines, advantages and the loss scale, as the trainer computes them.

Invariants: rows outside the baseline (infra_fault, late, cancelled) are masked before mean and spread and get advantage
0; the loss is renormalised by surviving rows for every loss type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callwright.envs.trajectory import Outcome

ROW_AVERAGED_LOSSES = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
"""Loss types whose denominator counts rows (TRL 1.16, read in source): masked rows must be renormalised away.

The others (dapo, bnpo, cispo, vespo) divide by unmasked tokens, which leaves masked rows out already.
"""


def advantages(rewards: Sequence[float | None], group_size: int, *, scale: str = "none") -> NDArray[np.float64]:
    """Group-relative advantages, shape [n]; ``rewards`` [n] lists groups one after another, None marks a masked row.

    A = r - mean(group), divided by (std + 1e-4) for ``scale`` "group" (Shao et al., 2024, DeepSeekMath, eq. 3; std with
    Bessel's correction) or by the whole batch's std for "batch"; "none" divides by nothing (Liu et al., 2025, Dr.
    GRPO).
    """
    if len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards are not whole groups of {group_size}")
    rows = np.array([np.nan if r is None else r for r in rewards], dtype=np.float64).reshape(-1, group_size)
    alive = ~np.isnan(rows)
    counts = alive.sum(1, keepdims=True)
    mean = np.where(alive, rows, 0.0).sum(1, keepdims=True) / np.maximum(counts, 1)
    centred = np.where(alive, rows - mean, 0.0)
    if scale == "group":
        spread = np.sqrt((centred**2).sum(1, keepdims=True) / np.maximum(counts - 1, 1))
        centred = centred / (spread + 1e-4)
    elif scale == "batch":
        values = rows[alive]
        centred = centred / ((values.std(ddof=1) if values.size > 1 else 0.0) + 1e-4)
    elif scale != "none":
        raise ValueError(f"unknown scale {scale!r}: group, batch or none")
    return centred.reshape(-1)


def loss_scale(loss_type: str, survivors: int, rows: int) -> float:
    """What the row-averaged loss types must be multiplied by so that only surviving rows count; 1 for the others."""
    if loss_type not in ROW_AVERAGED_LOSSES or survivors == 0:
        return 1.0
    return rows / survivors


@dataclass(frozen=True, slots=True)
class GroupStats:
    """What one batch of groups looked like."""

    groups: int
    zero_variance: int
    survivors: int
    rows: int


def group_stats(rewards: Sequence[float | None], group_size: int) -> GroupStats:
    """Count groups, and those whose surviving rewards are all alike (they teach nothing)."""
    groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
    return GroupStats(
        groups=len(groups),
        zero_variance=sum(has_zero_variance(group) for group in groups),
        survivors=sum(reward is not None for reward in rewards),
        rows=len(rewards),
    )


def spread(values: NDArray[np.float64], rewards: Sequence[float | None]) -> float:
    """The standard deviation of the advantages of surviving rows; 0 where none survived."""
    alive = np.array([reward is not None for reward in rewards], dtype=np.bool_)
    return float(values[alive].std()) if alive.any() else 0.0


def counts_wrongly(outcome: Outcome, reward: float | None) -> bool:
    """Whether a row is poison: it counted in its group, though it ended through no doing of the policy."""
    return reward is not None and not outcome.in_baseline


def has_zero_variance(group: Sequence[float | None]) -> bool:
    """Whether the surviving rewards of a group are all equal (or none survived)."""
    return len({reward for reward in group if reward is not None}) <= 1
