"""The page on loopback: rows as they are indexed, a rollout when it is opened.

Invariant: what a request names is looked up in the index, never in the file system; a host name that is not this
machine's own is refused, so that no web page can read the run through the browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callwright.serving.errors import UserError
from callwright.serving.gateway.server import address, bind, server
from callwright.serving.progress import log
from callwright.training.viewer.curves import curves
from callwright.training.viewer.index import COLUMNS, TraceIndex
from callwright.training.viewer.page import labels, page, policy, to_json
from callwright.training.viewer.rollouts import shown_rollout
from callwright.training.viewer.tokens import TokenTexts

HOST = "127.0.0.1"
BUDGET_S = 0.3  # of indexing in a request, so that the first rows show at once
ROWS = 20_000  # at most in a reply


class RunView:
    """One run folder, for any number of requests at once."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._index = TraceIndex(run)
        self._texts = TokenTexts(run)
        self._lock = Lock()

    @property
    def why_none(self) -> str:
        """Why tokens have no texts; empty where they have."""
        return self._texts.why_none

    def rows(self, start: int, generation: int) -> dict[str, Any]:
        """Rows from ``start`` on; all of them where the client knows another generation."""
        with self._lock:
            done = self._index.refresh(BUDGET_S)
            start = start if generation == self._index.generation else 0
            rows = self._index.rows[start : start + ROWS]
            done = done and start + len(rows) == len(self._index.rows)
            return {"generation": self._index.generation, "start": start, "rows": rows, "complete": done}

    def rollout(self, file: str, line: int) -> dict[str, Any]:
        """Raises LookupError where there is none such."""
        with self._lock:
            return shown_rollout(self._index.read(file, line), self._texts)


def build_app(folders: Sequence[Path]) -> Starlette:
    """Raises UserError for a folder without traces."""
    runs = [RunView(folder) for folder in folders]
    headings = [{"name": name, "why_none": run.why_none} for name, run in zip(labels(folders), runs, strict=True)]
    data = {"served": True, "columns": COLUMNS, "runs": headings}

    def index(_: Request) -> Response:
        # A header for what a meta element cannot say.
        headers = _HEADERS | {"content-security-policy": policy(served=True) + "; frame-ancestors 'none'"}
        return Response(page(data, served=True), media_type="text/html", headers=headers)

    def rows(request: Request) -> Response:
        return _json(_run(request).rows(request.path_params["start"], request.path_params["generation"]))

    def numbers(request: Request) -> Response:
        return _json(curves(_run(request).run))

    def rollout(request: Request) -> Response:
        return _json(_run(request).rollout(request.path_params["file"], request.path_params["line"]))

    def _run(request: Request) -> RunView:
        number: int = request.path_params["run"]
        return runs[number]

    return Starlette(
        routes=[
            Route("/", index),
            Route("/runs/{run:int}/rows/{generation:int}/{start:int}", rows),
            Route("/runs/{run:int}/curves", numbers),
            Route("/runs/{run:int}/rollouts/{file}/{line:int}", rollout),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)],
        exception_handlers={UserError: _unreadable, LookupError: _absent},
    )


def run_viewer(folders: Sequence[Path], port: int) -> None:
    """Serve until told to stop. Raises UserError for a folder without traces or a port that cannot be had."""
    app = build_app(folders)
    with bind(HOST, port) as listener:
        listener.listen()  # a browser that is quicker than the server waits instead of being refused
        log(f"viewing {' and '.join(map(str, folders))} at {address(listener)}")
        server(app).run(sockets=[listener])


_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def _json(value: Any, status: int = 200) -> Response:
    return Response(to_json(value), status, headers=_HEADERS, media_type="application/json")


def _unreadable(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 500)


def _absent(_: Request, error: Exception) -> Response:
    return _json({"error": f"not here: {error}"}, 404)
