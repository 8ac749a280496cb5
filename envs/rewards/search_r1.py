"""Search-R1: the outcome alone (Jin et al., 2025, arXiv:2503.09516: exact match of the answer, no format reward)."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.reward import RewardFunction


class SearchR1(RewardFunction):
    """correct * [the answer is right]. Right by the task's own comparison, in place of the paper's normalised match."""

    correct: float = Field(default=1.0, description="for a right answer")

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        return {"correct": self.correct * correct}
