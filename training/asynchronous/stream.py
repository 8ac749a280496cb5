"""Groups of rollouts that run ahead of the trainer, on the session's background loop.

Invariants: what may start is ``Admission``'s to say, asked whenever a group ends or a version is served; finished
groups wait in the order in which they are trained; every wait of the trainer ends: with its batch, at a deadline that
says what was waited for, or with the error of the group that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from callwright.envs.rollout_record import Rollout
from callwright.serving.errors import RunError
from callwright.training.asynchronous.admission import Admission, Place

Group = list[Rollout]
RunGroup = Callable[[Place, asyncio.Event], Awaitable[Group]]
"""Roll one group out. The event is set from when on the trainer waits for its batch."""


class Stream:
    """Lives on one event loop; every method is called there. ``close`` it whatever happens."""

    def __init__(self, admission: Admission, run_group: RunGroup) -> None:
        self._admission = admission
        self._run_group = run_group
        self._groups: dict[Place, asyncio.Task[Group]] = {}
        self._wanted: dict[int, asyncio.Event] = {}
        self._changed = asyncio.Event()

    def serve(self, version: int) -> None:
        """The engine samples from this version from now on."""
        self._admission.serve(version)
        self._start()

    async def take(self, batch: int, timeout_s: float) -> list[Group]:
        """The groups of a batch, in order, once all have closed. Raises RunError at the deadline, and what a group
        raised: a fault of ours, for no failure of a rollout gets here."""
        self._wanted_for(batch).set()
        places = [Place(batch, group) for group in range(self._admission.groups)]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not all(place in self._groups and self._groups[place].done() for place in places):
                    self._raise_failure()
                    self._changed.clear()
                    await self._changed.wait()
        self._raise_failure()
        missing = [place for place in places if place not in self._groups or not self._groups[place].done()]
        if missing:
            began = sum(place in self._groups for place in missing)
            raise RunError(
                f"the trainer waited {timeout_s:g} s for batch {batch}: of {len(places)} groups {began} still run and "
                f"{len(missing) - began} have not started"
            )
        del self._wanted[batch]
        return [self._groups.pop(place).result() for place in places]

    async def close(self) -> None:
        """Cancel what still runs. Safe to repeat."""
        for task in self._groups.values():
            task.cancel()
        await asyncio.gather(*self._groups.values(), return_exceptions=True)
        self._groups.clear()

    def _start(self) -> None:
        for place in self._admission.start():
            task = asyncio.ensure_future(self._run_group(place, self._wanted_for(place.batch)))
            task.add_done_callback(self._ended)
            self._groups[place] = task

    def _ended(self, task: asyncio.Task[Group]) -> None:
        self._changed.set()
        if not task.cancelled() and task.exception() is None:
            self._admission.end()
            self._start()

    def _raise_failure(self) -> None:
        for task in self._groups.values():
            if task.done():
                task.result()

    def _wanted_for(self, batch: int) -> asyncio.Event:
        return self._wanted.setdefault(batch, asyncio.Event())
