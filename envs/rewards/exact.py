"""The default: a right answer, and a little for keeping to the protocol."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.reward import RewardFunction


class Exact(RewardFunction):
    """correct * [the answer is right] + clean * [it answered, and nothing was refused on the way]."""

    correct: float = Field(default=1.0, description="for a right answer")
    clean: float = Field(
        default=0.1, description="for an answer, right or wrong, without a refused call or a violation"
    )

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        return {"correct": self.correct * correct, "clean": self.clean * evidence.clean}
