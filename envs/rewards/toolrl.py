"""ToolRL: format, and how well the calls match the gold calls (Qian et al., 2025, arXiv:2504.13958, section 3.3).

R = R_format + R_correct, R_format in {0, 1}, R_correct = 6 * S / S_max - 3. S is the Jaccard overlap of the tools'
names, and over the best pairing of calls with gold calls the overlap of the argument names and the number of arguments
that are equal; S_max = 1 + |G| + (arguments in G), G being the gold calls. The answer itself is not looked at: what the
paper scores turn by turn is here the whole rollout beside its plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import Field

from callwright.envs.rewards.evidence import CallRecord, Evidence
from callwright.envs.rewards.reward import RewardFunction
from callwright.envs.tasks.task import Step


class ToolRL(RewardFunction):
    """format * [clean] + calls * (2 * S / S_max - 1)."""

    format: float = Field(default=1.0, description="for an answer without a refused call or a violation")
    calls: float = Field(
        default=3.0, description="for calls that match the gold calls; as much is taken where none does"
    )

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        share = match_share(evidence.calls, evidence.task.plan)
        return {"format": self.format * evidence.clean, "calls": self.calls * (2 * share - 1)}


def match_share(calls: Sequence[CallRecord], gold: Sequence[Step]) -> float:
    """S / S_max, in 0-1. Where no call is gold, making none is 1 and making any is 0."""
    names = _overlap(Counter(call.tool for call in calls), Counter(step.tool for step in gold))
    best = 1.0 + len(gold) + sum(len(step.arguments) for step in gold)
    pairs = sorted(
        ((_similarity(call, step), i, j) for i, call in enumerate(calls) for j, step in enumerate(gold)),
        key=lambda pair: -pair[0],
    )
    score, used_calls, used_gold = names, set[int](), set[int]()
    for similarity, i, j in pairs:  # best first, as the paper's own code pairs them
        if i not in used_calls and j not in used_gold:
            score += similarity
            used_calls.add(i)
            used_gold.add(j)
    return score / best


def _similarity(call: CallRecord, step: Step) -> float:
    """Argument names shared, plus arguments equal; 0 for another tool."""
    if call.tool != step.tool:
        return 0.0
    given, gold = call.arguments, step.arguments
    equal = sum(bool(name in given and given[name] == value) for name, value in gold.items())
    return _overlap(Counter(given.keys()), Counter(gold.keys())) + equal


def _overlap(left: Counter[str], right: Counter[str]) -> float:
    """Jaccard overlap of two bags; 1 where both are empty."""
    union = (left | right).total()
    return (left & right).total() / union if union else 1.0
