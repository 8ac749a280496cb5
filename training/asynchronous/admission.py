"""Which groups may start now.

Invariants: groups start in the order in which they are trained; a group of batch ``b`` starts only once version
``b - max_staleness`` is served, so that none of its tokens is older than that when it is trained, and none has to be
thrown away for its age. What has started and is not trained therefore never exceeds ``max_staleness + 1`` batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """Group number ``group`` of batch ``batch``."""

    batch: int
    group: int


@dataclass(slots=True)
class Admission:
    """Batches ``version``, ``version + 1``, ... up to ``batches`` of ``groups`` groups each; version ``v`` has trained
    on the batches before ``v``. At most ``at_once`` groups run."""

    groups: int
    batches: int
    max_staleness: int
    at_once: int
    version: int
    _running: int = 0
    _started: int = 0

    def __post_init__(self) -> None:
        self._started = self.version * self.groups

    def start(self) -> list[Place]:
        """The groups that start now, and count as running from here on."""
        open_until = min(self.version + self.max_staleness + 1, self.batches) * self.groups
        count = max(0, min(self.at_once - self._running, open_until - self._started))
        places = [Place(*divmod(number, self.groups)) for number in range(self._started, self._started + count)]
        self._started += count
        self._running += count
        return places

    def end(self) -> None:
        """A group ended; another may take its room."""
        self._running -= 1

    def serve(self, version: int) -> None:
        """A later version is served from now on. Raises ValueError for an earlier one."""
        if version < self.version:
            raise ValueError(f"version {version} after version {self.version}")
        self.version = version
