"""Receivers that wait are woken for their own lane, and leave nothing behind."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from callwright.serving.queues.waiters import Waiters

pytestmark = pytest.mark.unit


def test_waking_a_lane_wakes_no_other() -> None:
    waiters = Waiters()
    with ExitStack() as stack:
        mine, also, other, elsewhere, any_lane = (
            stack.enter_context(waiters.waiting(queue, lane))
            for queue, lane in (("q", "a"), ("q", "a"), ("q", "b"), ("p", "a"), ("q", None))
        )
        waiters.wake("q", "a")
        assert [e.is_set() for e in (mine, also, any_lane, other, elsewhere)] == [True, True, True, False, False]
        assert sorted(waiters.queues) == ["p", "q"]
        waiters.wake_all()
        assert other.is_set()
        assert elsewhere.is_set()
    assert waiters.queues == []
    waiters.wake("q", "a")
