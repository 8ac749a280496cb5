"""Rewards: what a finished rollout earns, and the check that every task's own gold answer earns it."""

from callwright.envs.rewards.calls import CallTool, Episodes
from callwright.envs.rewards.gold_check import GoldFailure, gold_check
from callwright.envs.rewards.grade import grade
from callwright.envs.rewards.reward import GradingFault, Reward, RewardWeights
from callwright.envs.rewards.storage import set_up

__all__ = [
    "CallTool",
    "Episodes",
    "GoldFailure",
    "GradingFault",
    "Reward",
    "RewardWeights",
    "gold_check",
    "grade",
    "set_up",
]
