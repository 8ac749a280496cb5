"""A worker's ``/healthz`` and ``/metrics`` on the loopback interface.

Invariant: they are served from a thread of their own and only read counters, so they answer while the event loop does
not: that is when they are needed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from callwright.envs.executors.command_queue import CommandWorker
from callwright.serving.errors import UserError

HOST = "127.0.0.1"


class WorkerMetrics(Collector):
    """The counters of one worker, read at the moment of the scrape. Labels are of closed sets."""

    def __init__(self, worker: CommandWorker, beat_age_s: Callable[[], float]) -> None:
        self._worker = worker
        self._beat_age_s = beat_age_s

    def collect(self) -> Iterator[Metric]:
        counts, tool = self._worker.counts, self._worker.tool.name
        calls = CounterMetricFamily(_name("calls"), "Calls by how they ended", labels=["tool", "status"])
        for status, count in counts.statuses.items():
            calls.add_metric([tool, str(status)], count)
        yield calls
        for name, meaning, value in (
            ("executor_seconds", "Time spent in the executor, all calls together", counts.seconds),
            ("redelivered", "Commands that came a second time or more", counts.redelivered),
            ("from_journal", "Commands answered from the journal, without a second run", counts.from_journal),
            ("leases_lost", "Calls whose lease ran out while they ran", counts.leases_lost),
            ("broker_errors", "Failures of the broker", counts.broker_errors),
        ):
            counter = CounterMetricFamily(_name(name), meaning, labels=["tool"])
            counter.add_metric([tool], value)
            yield counter
        for name, meaning, value in (
            ("in_flight", "Calls in hand", self._worker.in_flight),
            ("heartbeat_age_seconds", "Since the broker took the last heartbeat", self._beat_age_s()),
        ):
            gauge = GaugeMetricFamily(_name(name), meaning, labels=["tool"])
            gauge.add_metric([tool], value)
            yield gauge


class WorkerEndpoint:
    """Serves for as long as the ``with`` block runs. ``health`` gives whether all is well, and the facts."""

    def __init__(self, port: int, health: Callable[[], tuple[bool, Mapping[str, Any]]], metrics: Collector) -> None:
        """``port`` 0 takes any free one. Raises UserError where the port cannot be had."""
        registry = CollectorRegistry()
        registry.register(metrics)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/healthz":
                    well, facts = health()
                    self._answer(200 if well else 503, "application/json", json.dumps(facts).encode())
                elif self.path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                else:
                    self._answer(404, "text/plain", b"/healthz or /metrics\n")

            def _answer(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """A scrape every few seconds is no news."""

        try:
            self._server = ThreadingHTTPServer((HOST, port), Handler)
        except OSError as error:
            raise UserError(f"executors.health_port: cannot listen on {HOST} port {port}: {error.strerror}") from None
        self.url = f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="worker endpoint", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _name(what: str) -> str:
    return f"callwright_worker_{what}"
