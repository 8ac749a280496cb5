"""Format-gated: nothing is paid through a broken format (Zheng et al., 2025, DeepResearcher, arXiv:2504.03160).

The paper gives -1 to a malformed rollout and else the answer's word-level F1; the tasks here have answers of one word,
so that F1 is whether it is right.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.reward import RewardFunction


class FormatGated(RewardFunction):
    """broken, where it did not finish cleanly; else correct * [the answer is right]."""

    correct: float = Field(default=1.0, description="for a right answer of a clean rollout")
    broken: float = Field(default=-1.0, description="for a refused call, a violation or no answer, however right")

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        return {"gated": self.correct * correct if evidence.clean else self.broken}
