"""Rewards: what an ended rollout earns, and the check that every task's own gold answer earns it."""

from callwright.envs.rewards.evidence import CallRecord, Evidence, evidence_of
from callwright.envs.rewards.gold_check import GoldFailure, gold_check
from callwright.envs.rewards.grade import CallTool, grade, solves, ungraded
from callwright.envs.rewards.registry import REWARDS, RewardSpec
from callwright.envs.rewards.reward import GradingFault, Reward, RewardFunction

__all__ = [
    "REWARDS",
    "CallRecord",
    "CallTool",
    "Evidence",
    "GoldFailure",
    "GradingFault",
    "Reward",
    "RewardFunction",
    "RewardSpec",
    "evidence_of",
    "gold_check",
    "grade",
    "solves",
    "ungraded",
]
