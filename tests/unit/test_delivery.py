"""The three modes deliver the same; only the pieces and the moment differ."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callwright.serving.protocol.delivery import Deliverer, Delivery
from callwright.serving.protocol.events import Event, EventType

pytestmark = pytest.mark.unit

events = st.lists(st.builds(Event, st.sampled_from(EventType), st.text(max_size=4)), max_size=12)
STREAMED = (EventType.THINK, EventType.RESPOND)


def delivered(mode: Delivery, given_events: list[Event]) -> tuple[list[Event], list[Event]]:
    """(what left before the close, everything)."""
    seen: list[Event] = []
    deliverer = Deliverer(seen.append, mode)
    for event in given_events:
        deliverer(event)
    before = list(seen)
    deliverer.close()
    deliverer.close()
    return before, seen


def joined(given_events: list[Event]) -> list[tuple[EventType, str]]:
    result: list[tuple[EventType, str]] = []
    for kind, run in groupby(given_events, key=lambda event: event.type):
        texts = [event.content for event in run]
        result += [(kind, "".join(texts))] if kind in STREAMED else [(kind, text) for text in texts]
    return result


@given(given_events=events)
def test_all_modes_deliver_the_same_text_in_the_same_order(given_events: list[Event]) -> None:
    assert delivered(Delivery.TOKEN, given_events) == (given_events, given_events)
    for mode in (Delivery.EVENT, Delivery.NONE):
        _, seen = delivered(mode, given_events)
        assert [(event.type, event.content) for event in seen] == joined(given_events)


@given(given_events=events)
def test_whole_stretches_leave_as_soon_as_they_are_whole_and_without_streaming_nothing_does(
    given_events: list[Event],
) -> None:
    assert delivered(Delivery.NONE, given_events)[0] == []
    before, seen = delivered(Delivery.EVENT, given_events)
    open_run = bool(given_events) and given_events[-1].type in STREAMED
    assert before == (seen[:-1] if open_run else seen)
