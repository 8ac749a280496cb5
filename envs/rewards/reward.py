"""What an ended rollout earns, and the shape of every function that says so.

Invariants: a reward is the sum of named parts; ``success`` is correctness alone, whatever the parts weigh; a reward
function reads evidence and never text; a fault of ours while grading is an exception, never a reward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from callwright.envs.rewards.evidence import Evidence


class GradingFault(RuntimeError):
    """The grader's own call did not get through: the row is an infra fault and leaves the group's baseline."""


@dataclass(frozen=True, slots=True)
class Reward:
    """The parts by name, and whether the answer was right."""

    parts: Mapping[str, float]
    success: bool

    @property
    def total(self) -> float:
        """The number that training sees."""
        return sum(self.parts.values())


class RewardFunction(BaseModel, ABC):
    """A reward function. Its fields are its weights; their defaults are those of its source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @abstractmethod
    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        """What the rollout earns, by part. ``correct``: its answer was judged right."""
