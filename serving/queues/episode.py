"""The lanes that one rollout keeps for itself: one of each stateful tool that it calls.

Invariants: a stateful tool's calls of one episode go through one lane, one after another, in the order in which they
were made; an executor keeps a stateful tool's state by lane, so no other rollout sees it; the lane's epoch ends with
the episode, and its session id never comes back. After a call in doubt the state is lost, and every later call of that
tool says so. Stateless tools have no part in this: each of their calls takes any free lane.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from callwright.serving.queues.lanes import Lane, LanePool


class StateLost(Exception):
    """An earlier call of this episode ended in doubt, so nobody knows the tool's state."""


@dataclass(slots=True)
class OwnLane:
    """An episode's place at one stateful tool. Hold ``turn`` around ``take`` and the call."""

    pool: LanePool
    lane: Lane | None = None
    lost: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # first come, first served

    async def take(self) -> Lane:
        """The episode's lane; the first time, the longest free one of the pool. Raises StateLost."""
        if self.lost:
            raise StateLost("an earlier call of this episode ended in doubt, and the tool's state with it")
        if self.lane is None:
            self.lane = await self.pool.take()
        return self.lane

    def give_back(self, lane: Lane) -> None:
        """Its call is over: the episode's next one goes on in it."""
        self.lane = lane.after_reply()

    def lose(self) -> None:
        """The lane's epoch was ended by someone else, with a call unanswered."""
        self.lane, self.lost = None, True

    def close(self) -> None:
        """End the lane's epoch: the place goes on, the session id does not."""
        if self.lane is not None:
            self.pool.retire(self.lane)
            self.lane = None
