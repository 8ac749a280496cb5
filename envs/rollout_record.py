"""What a rollout leaves: one attempt at one task, from its tokens to what it earned."""

from __future__ import annotations

from dataclasses import dataclass, field

from callwright.envs.rewards import CallRecord, Evidence, Reward
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome, Trajectory
from callwright.serving.protocol import Event, Rejection
from callwright.serving.protocol.events import Spent


@dataclass(slots=True)
class Rollout:
    """One attempt at one task: tokens, calls, verdicts, reward and timing. ``waiting_for`` is what it does now."""

    task: Task
    sample: int
    trajectory: Trajectory = field(default_factory=Trajectory)
    calls: list[CallRecord] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    violations: int = 0
    events: list[Event] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)  # the calls made by the answer to each of the user's messages
    solution: str | None = None
    reward: Reward | None = None
    seconds: float = 0.0
    tool_seconds: float = 0.0
    waiting_for: str = "its start"
    spent: Spent = field(default_factory=Spent)

    @property
    def outcome(self) -> Outcome:
        """How it ended. Raises RuntimeError while it runs."""
        if self.trajectory.outcome is None:
            raise RuntimeError("the rollout has not ended")
        return self.trajectory.outcome

    @property
    def success(self) -> bool:
        return self.reward is not None and self.reward.success

    @property
    def total_reward(self) -> float | None:
        """The reward that counts in the group; None for a row that must stay out of it."""
        if not self.outcome.in_baseline:
            return None
        return 0.0 if self.reward is None else self.reward.total

    @property
    def evidence(self) -> Evidence:
        """What it is graded by."""
        calls, rejected = tuple(self.calls), len(self.rejections)
        return Evidence(self.task, self.solution, calls, rejected, self.violations, tuple(self.answered))
