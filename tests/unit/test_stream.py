"""The stream of groups: in order, never standing still, and every wait of the trainer ends with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callwright.serving.errors import RunError
from callwright.training.asynchronous.admission import Admission, Place
from callwright.training.asynchronous.stream import Stream

pytestmark = pytest.mark.unit

WAIT_S = 30.0


class Groups:
    """Groups that end when they are told to; remembers which began, and which were cancelled."""

    def __init__(self) -> None:
        self.began: list[Place] = []
        self.cancelled: list[Place] = []
        self.wanted: dict[Place, asyncio.Event] = {}
        self._gates: dict[Place, asyncio.Future[list[Any]]] = {}

    async def run(self, place: Place, wanted: asyncio.Event) -> list[Any]:
        self.began.append(place)
        self.wanted[place] = wanted
        self._gates[place] = asyncio.get_running_loop().create_future()
        try:
            return await self._gates[place]
        except asyncio.CancelledError:
            self.cancelled.append(place)
            raise

    async def end(self, *places: tuple[int, int]) -> None:
        await asyncio.sleep(0)  # a group that was started has not begun before its first turn on the loop
        for place in places:
            self._gates[Place(*place)].set_result([place])
        for _ in range(5):
            await asyncio.sleep(0)


def stream_of(run: Groups, **options: int) -> Stream:
    settings = {"groups": 2, "batches": 4, "max_staleness": 1, "at_once": 3, "version": 0, **options}
    return Stream(Admission(**settings), run.run)


async def test_groups_run_ahead_and_are_taken_in_order() -> None:
    groups = Groups()
    stream = stream_of(groups)
    stream.serve(0)
    await groups.end((0, 1), (1, 0))  # three run at once: the third and fourth batch's groups are not open yet
    assert groups.began == [(0, 0), (0, 1), (1, 0), (1, 1)]
    taken = asyncio.create_task(stream.take(0, WAIT_S))
    await asyncio.sleep(0)
    assert groups.wanted[Place(0, 0)].is_set()
    assert not groups.wanted[Place(1, 1)].is_set()
    assert not taken.done()
    await groups.end((0, 0))
    assert await taken == [[(0, 0)], [(0, 1)]]
    assert len(groups.began) == 4, "the next batches wait for newer weights"
    stream.serve(1)
    await groups.end((1, 1))
    assert await stream.take(1, WAIT_S) == [[(1, 0)], [(1, 1)]]
    assert groups.began[4:] == [(2, 0), (2, 1)]
    await stream.close()
    assert groups.cancelled == [(2, 0), (2, 1)]


async def test_a_group_that_fails_ends_the_wait_with_its_own_error() -> None:
    groups = Groups()

    async def run(place: Place, wanted: asyncio.Event) -> list[Any]:
        if place == (1, 0):
            await asyncio.sleep(0)
            raise ZeroDivisionError("a fault of ours")
        return await groups.run(place, wanted)

    stream = Stream(Admission(groups=2, batches=4, max_staleness=1, at_once=9, version=0), run)
    stream.serve(0)
    with pytest.raises(ZeroDivisionError, match="a fault of ours"):
        await stream.take(0, WAIT_S)
    await stream.close()
    assert groups.cancelled == [(0, 0), (0, 1), (1, 1)]


async def test_a_wait_has_a_deadline_and_says_for_what() -> None:
    groups = Groups()
    stream = stream_of(groups, at_once=1, groups=3)
    stream.serve(0)
    await groups.end((0, 0))
    with pytest.raises(RunError, match=r"waited 0\.1 s for batch 0: of 3 groups 1 still run and 1 have not started"):
        await stream.take(0, 0.1)
    await stream.close()
