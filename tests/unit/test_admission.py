"""Which groups may start: never too early for their staleness, in order, each once, and no schedule stands still."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.training.asynchronous.admission import Admission, Place

pytestmark = pytest.mark.unit

durations = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=40)


@given(
    groups=st.integers(1, 5),
    batches=st.integers(0, 8),
    first=st.integers(0, 3),
    staleness=st.integers(0, 4),
    at_once=st.integers(1, 30),
    rollouts=durations,
    training=durations,
)
@settings(max_examples=300, deadline=None)
def test_the_bound_is_kept_and_nothing_is_thrown_away(
    groups: int,
    batches: int,
    first: int,
    staleness: int,
    at_once: int,
    rollouts: list[float],
    training: list[float],
) -> None:
    """A whole run under a clock of the test's own: rollouts and training take random times."""
    last = first + batches
    admission = Admission(groups, last, staleness, at_once, version=first)
    clock, running, began, ended = 0.0, [], {}, set()
    trained: list[Place] = []

    def start() -> None:
        for place in admission.start():
            assert place not in began
            began[place] = admission.version
            seconds = rollouts[len(began) % len(rollouts)]
            heapq.heappush(running, (clock + seconds, place))
            assert len(running) <= at_once

    def end_until(time: float) -> None:
        nonlocal clock
        while running and running[0][0] <= time:
            clock, place = heapq.heappop(running)
            ended.add(place)
            admission.end()
            start()
        clock = max(clock, time)

    for batch in range(first, last):
        admission.serve(batch)
        start()
        while not all(Place(batch, group) in ended for group in range(groups)):
            assert running, "a batch is waited for and nothing runs"
            end_until(running[0][0])
        waiting = len(began) - len(trained)
        assert waiting <= (staleness + 1) * groups
        for group in range(groups):
            assert batch - began[Place(batch, group)] <= staleness
            trained.append(Place(batch, group))
        end_until(clock + training[batch % len(training)])
    assert sorted(began) == trained == [Place(batch, group) for batch in range(first, last) for group in range(groups)]
    assert admission.start() == []


def test_without_staleness_a_batch_waits_for_its_weights() -> None:
    admission = Admission(groups=2, batches=3, max_staleness=0, at_once=8, version=0)
    assert admission.start() == [(0, 0), (0, 1)]
    admission.end()
    admission.end()
    assert admission.start() == []
    admission.serve(1)
    assert admission.start() == [(1, 0), (1, 1)]
    with pytest.raises(ValueError, match="after version 1"):
        admission.serve(0)
