"""Rewards: what a finished rollout earns, and the check that every task's own gold answer earns it."""

from callwright.envs.rewards.gold_check import GoldFailure, gold_check
from callwright.envs.rewards.grade import CallTool, grade, ungraded
from callwright.envs.rewards.reward import GradingFault, Reward, RewardWeights

__all__ = ["CallTool", "GoldFailure", "GradingFault", "Reward", "RewardWeights", "gold_check", "grade", "ungraded"]
