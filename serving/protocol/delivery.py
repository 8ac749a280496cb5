"""When events leave for whoever watches: as their tokens come, one a stretch, or all at the end.

Invariant: the three modes deliver the same text, type by type, in the same order; they differ in its pieces and in time
alone. A stretch is a run of ``think`` or ``respond`` pieces; no other event is ever joined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from callwright.serving.protocol.events import Event, EventType

_STREAMED = (EventType.THINK, EventType.RESPOND)


class Delivery(StrEnum):
    TOKEN = "token"
    EVENT = "event"
    NONE = "none"


class Deliverer:
    """Hands events on to ``sink`` as the mode says; ``close`` it when no more will come."""

    def __init__(self, sink: Callable[[Event], None], mode: Delivery = Delivery.TOKEN) -> None:
        self._sink = sink
        self._mode = mode
        self._run: list[Event] = []
        self._kept: list[Event] = []

    def __call__(self, event: Event) -> None:
        if self._mode is Delivery.TOKEN:
            self._sink(event)
        elif event.type in _STREAMED:
            if self._run and self._run[0].type is not event.type:
                self._end_run()
            self._run.append(event)
        else:
            self._end_run()
            self._leave(event)

    def close(self) -> None:
        """Hand on what is still held. Safe to repeat."""
        self._end_run()
        kept, self._kept = self._kept, []
        for event in kept:
            self._sink(event)

    def _end_run(self) -> None:
        run, self._run = self._run, []
        if run:
            self._leave(replace(run[0], content="".join(event.content for event in run)))

    def _leave(self, event: Event) -> None:
        if self._mode is Delivery.NONE:
            self._kept.append(event)
        else:
            self._sink(event)
