"""What is handed to an engine's thread from outside it: turns to generate, and a change of weights.

Invariants: an id is recorded with the version that sampled it; a turn's future is settled on the loop that waits for
it; whoever waits for a change of weights hears of its end, good or bad.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from callwright.serving.engines.engine import Completion, EngineError, FinishReason, Request

if TYPE_CHECKING:
    from llguidance import LLMatcher

JobOutcome = Completion | EngineError


@dataclass(slots=True, eq=False)
class Job:
    """One turn in the engine: what was asked, who waits for it, and what was sampled so far."""

    request: Request
    future: asyncio.Future[Completion]
    loop: asyncio.AbstractEventLoop
    matcher: LLMatcher | None = None  # what holds it to the request's grammar
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cancelled: bool = False
    error: EngineError | None = None
    _versions: list[tuple[int, int]] = field(default_factory=list)  # (index of its first id, version)

    def append(self, token: int, logprob: float, version: int) -> None:
        """Record one sampled id."""
        if not self._versions or self._versions[-1][1] != version:
            self._versions.append((len(self.ids), version))
        self.ids.append(token)
        self.logprobs.append(logprob)

    def completion(self, reason: FinishReason) -> Completion:
        """The whole turn, which has at least one id."""
        (_, first), *changes = self._versions
        return Completion(tuple(self.ids), tuple(self.logprobs), reason, first, tuple(changes))


@dataclass(slots=True, eq=False)
class Update:
    """A change of weights: ``apply`` makes it, in the engine's thread."""

    version: int
    apply: Callable[[], None]
    _done: threading.Event = field(default_factory=threading.Event)
    _error: Exception | None = None

    def end(self, error: Exception | None) -> None:
        """Say that it was made, or why it was not."""
        self._error = error
        self._done.set()

    def wait(self, seconds: float) -> None:
        """Wait for its end. Raises what went wrong with it, and EngineError when it takes longer than ``seconds``."""
        if not self._done.wait(seconds):
            raise EngineError(f"the engine did not take new weights within {seconds:g} s")
        if self._error is not None:
            raise self._error


def post(loop: asyncio.AbstractEventLoop, batch: list[tuple[Job, JobOutcome]]) -> None:
    """Settle the futures of turns that wait on this loop."""

    def settle() -> None:
        for job, outcome in batch:
            if job.future.done():
                continue
            if isinstance(outcome, Completion):
                job.future.set_result(outcome)
            else:
                job.future.set_exception(outcome)

    with contextlib.suppress(RuntimeError):  # a loop that closed in the meantime has nobody waiting on it
        loop.call_soon_threadsafe(settle)
