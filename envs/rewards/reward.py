"""What a finished rollout earns.

Invariants: a reward is the sum of named parts; ``success`` is correctness alone, whatever the parts weigh; a fault of
ours while grading is an exception, never a reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class GradingFault(RuntimeError):
    """The grader's own call did not get through: the row is an infra fault and leaves the group's baseline."""


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """What each part pays. ``clean`` is for a finish without a rejected call or another violation."""

    correct: float = 1.0
    clean: float = 0.1


@dataclass(frozen=True, slots=True)
class Reward:
    """The parts by name, and whether the answer was right."""

    parts: Mapping[str, float]
    success: bool

    @property
    def total(self) -> float:
        """The number that training sees."""
        return sum(self.parts.values())
