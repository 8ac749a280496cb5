"""Counters for ``/metrics``, in a registry of the gateway's own.

Invariant: labels are of closed sets (wires, statuses), so a client can make no new series.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from callwright.serving.wires.base import WireFormat
from callwright.serving.wires.server import Usage

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Meter:
    """Of one reply."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def usage(self, usage: Usage) -> None:
        self._meters.tokens.labels("input").inc(usage.input)
        self._meters.tokens.labels("output").inc(usage.output)


class Meters:
    """All of them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "callwright_gateway_{}".format
        self.requests = Counter(name("requests"), "Requests by answer", ["wire", "status"], registry=self.registry)
        self.tokens = Counter(name("tokens"), "Tokens read and sampled", ["kind"], registry=self.registry)
        self.contexts = Counter(
            name("contexts"), "How contexts came about: new, spliced, rendered again", ["how"], registry=self.registry
        )
        self.cancelled = Counter(name("cancelled"), "Replies whose client left", registry=self.registry)
        self.in_flight = Gauge(name("in_flight"), "Replies in the making", registry=self.registry)
        self.seconds = Histogram(
            name("reply_seconds"), "Time of a whole reply", ["wire"], registry=self.registry, buckets=_SECONDS
        )

    @contextmanager
    def reply(self, fmt: WireFormat, how: str) -> Iterator[Meter]:
        """Around the making of one reply."""
        self.contexts.labels(how).inc()
        self.in_flight.inc()
        started = time.monotonic()
        try:
            yield Meter(self)
        except asyncio.CancelledError:
            self.cancelled.inc()
            raise
        finally:
            self.in_flight.dec()
            self.seconds.labels(str(fmt)).observe(time.monotonic() - started)

    def text(self) -> bytes:
        return generate_latest(self.registry)
