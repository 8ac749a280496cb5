"""OTC: correctness times call efficiency (Wang et al., 2025, arXiv:2504.14870, the GRPO form).

R = scale * r_tool * [right], with m calls made and n the least that suffice: r_tool is 1 for m = n = 0,
cos(m * pi / (2m + c)) for n = 0, else sin(f * pi / 2n) with f = 2nm / (m + n). The paper estimates n from the right
rollouts of a group; here it is the length of the gold plan. Multiplied, efficiency pays nothing to a wrong answer;
added it would pay for dropping tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, pi, sin

from pydantic import Field

from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rewards.reward import RewardFunction


class OTC(RewardFunction):
    """scale * r_tool * [the answer is right]."""

    scale: float = Field(default=1.0, description="for a right answer with as many calls as the plan has")
    smooth: float = Field(default=1.0, gt=0, description="c: how slowly needless calls cost where none is needed")

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        return {"efficient": self.scale * self.efficiency(len(evidence.calls), len(evidence.task.plan)) * correct}

    def efficiency(self, made: int, needed: int) -> float:
        """r_tool, in 0-1."""
        if needed == 0:
            return cos(made * pi / (2 * made + self.smooth)) if made else 1.0
        return sin(made / (made + needed) * pi)
