"""A fixed pool of lanes. A lane is a place in the pool plus an epoch; its session id names both."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Lane:
    """One place of a pool in one epoch."""

    pool: str
    index: int
    epoch: int = 0

    @property
    def session(self) -> str:
        return f"{self.pool}-{self.index}.{self.epoch}"


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
        self._free.put_nowait(lane)

    def retire(self, lane: Lane) -> None:
        """The place goes on in its next epoch."""
        self._free.put_nowait(replace(lane, epoch=lane.epoch + 1))
