"""ToRL: plus or minus one for the answer (Li, Zou and Liu, 2025, arXiv:2503.23383).

The paper also tried -0.5 for code that does not run, and left it out because it did not help; so here it weighs 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.reward import RewardFunction
from callwright.serving.protocol.tools import CODE
from callwright.serving.queues.reply import CallStatus


class ToRL(RewardFunction):
    """right or wrong for the answer, none being wrong; failing_code * [a code call failed or hit a limit]."""

    right: float = Field(default=1.0, description="for a right answer")
    wrong: float = Field(default=-1.0, description="for a wrong answer, and for none")
    failing_code: float = Field(
        default=0.0, description="where a code call failed or hit a limit; the paper tried -0.5"
    )

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        failed = any(
            call.tool == CODE.name and call.status in (CallStatus.ERROR, CallStatus.LIMIT) for call in evidence.calls
        )
        return {"answer": self.right if correct else self.wrong, "failing_code": self.failing_code * failed}
