"""A fixed pool of lanes. A lane is a place in the pool plus an epoch; its session id names both.

The id of a call's message is its lane's session, its place in that session and the call's own id, so a reply tells by
itself whether it is the one that is awaited, or a second copy of one that came before, and a log tells whose it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Lane:
    """One place of a pool in one epoch, in which ``answered`` calls have had their reply."""

    pool: str
    index: int
    epoch: int = 0
    answered: int = 0

    @property
    def session(self) -> str:
        return f"{self.pool}-{self.index}.{self.epoch}"

    def message_id(self, call_id: str) -> str:
        """The id of the lane's next message, which carries this call."""
        return f"{self.session}/{self.answered}/{call_id}"

    def was_answered(self, message_id: str) -> bool:
        """Whether it is the id of a call that this lane has had the reply of."""
        session, _, rest = message_id.partition("/")
        place = rest.partition("/")[0]
        return session == self.session and place.isdecimal() and int(place) < self.answered


def call_id_of(message_id: str) -> str:
    """The id of the call that a message of a lane carries; '' for a message of another kind."""
    return message_id.partition("/")[2].partition("/")[2]


class LanePool:
    """Invariants: a lane is in one pair of hands; the places stay as many; a retired session never returns."""

    def __init__(self, name: str, size: int) -> None:
        self.size = size
        self._free: asyncio.Queue[Lane] = asyncio.Queue()
        for index in range(size):
            self._free.put_nowait(Lane(name, index))

    @property
    def free(self) -> int:
        return self._free.qsize()

    async def take(self) -> Lane:
        """The longest free lane. Waits without a deadline: the caller holds one around it."""
        return await self._free.get()

    def give_back(self, lane: Lane) -> None:
        """Its call is over: the place goes on with the next."""
        self._free.put_nowait(replace(lane, answered=lane.answered + 1))

    def retire(self, lane: Lane) -> None:
        """The place goes on in its next epoch."""
        self._free.put_nowait(replace(lane, epoch=lane.epoch + 1, answered=0))
