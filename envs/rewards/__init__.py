"""Rewards: what an ended rollout earns, and the check that every task's own gold answer earns it."""

from callwright.envs.rewards.calls import CallTool, Episodes
from callwright.envs.rewards.evidence import CallRecord, Evidence, evidence_of
from callwright.envs.rewards.gold_check import GoldFailure, gold_check
from callwright.envs.rewards.grade import grade, solves, ungraded
from callwright.envs.rewards.registry import REWARDS, RewardSpec
from callwright.envs.rewards.reward import GradingFault, Reward, RewardFunction
from callwright.envs.rewards.storage import set_up

__all__ = [
    "REWARDS",
    "CallRecord",
    "CallTool",
    "Episodes",
    "Evidence",
    "GoldFailure",
    "GradingFault",
    "Reward",
    "RewardFunction",
    "RewardSpec",
    "evidence_of",
    "gold_check",
    "grade",
    "set_up",
    "solves",
    "ungraded",
]
