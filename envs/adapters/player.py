"""What plays one of our tasks for a framework that has a loop of its own: a session of ``training`` is one."""

from __future__ import annotations

from typing import Protocol

from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.serving.engines.remote import RemoteEngine


class Player(Protocol):
    """Blocks, and may be called from several threads at once."""

    def play(self, task: Task, *, sample: int = 0, engine: RemoteEngine | None = None) -> Rollout:
        """One rollout, graded; ``engine`` asks another model than the player's own."""
        ...
