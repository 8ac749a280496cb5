"""Continuous batching over any transformers causal LM, in a thread of its own.

Invariants: the forward pass runs off the event loop; a session that waits for its tool holds no place in the batch,
only its key/value row; every job ends in exactly one completion, error or cancellation; weights change between two
decode steps, and each id goes with the version that sampled it. With ``barrier`` on (deterministic mode) a wave starts
only when every open session waits, and runs in the order of the jobs' keys.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from callwright.serving.engines.constraint import Grammars
from callwright.serving.engines.engine import Completion, EngineError, EngineStats, FinishReason, Request
from callwright.serving.engines.jobs import Job, JobOutcome, Update, post
from callwright.serving.engines.rows import Rows
from callwright.serving.engines.sampler import sample, uniforms
from callwright.serving.wires.base import WireFormat

if TYPE_CHECKING:
    from llguidance import LLMatcher

DRAIN_S = 60.0  # how long new weights wait for a cancelled turn to leave the batch
UPDATE_S = 600.0  # how long a change of weights may take, the step that runs included
ADMISSION_INTERVAL = 4  # decode steps between admissions while a batch runs: few wide prefills beat many narrow ones


class TransformersEngine:
    """Token in, token out, over a model that lives in this process.

    ``rows``: sessions held at once; ``context``: the longest context in tokens, prompt and completion together;
    ``grammars``: what compiles a request's grammar for this model's tokens (None: no request has one).
    """

    constrains: ClassVar[bool] = True

    tool_wire_format: ClassVar[WireFormat] = WireFormat.HERMES  # what a model here says is text

    def __init__(
        self,
        model: Any,
        *,
        rows: int = 64,
        context: int = 1024,
        barrier: bool = False,
        grammars: Grammars | None = None,
    ) -> None:
        self._model = model
        self._grammars = grammars
        self._rows: Rows[Job] = Rows(model, rows, context)
        self._barrier = barrier
        self._open: set[str] = set()
        self._released: set[str] = set()  # with the barrier on: let go when the next wave starts
        self._wave: list[Job] = []
        self._inbox: list[Job] = []
        self._condition = threading.Condition()
        self._stopping = False
        self._update: Update | None = None
        self._version = 0
        self._steps_since_admission = 0
        self.stats = EngineStats()
        self._thread = threading.Thread(target=self._run, name="callwright-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        return self._version

    @property
    def context(self) -> int:
        """The longest context in tokens."""
        return self._rows.context

    def set_version(self, version: int) -> None:
        """Say that the weights changed: forget every cached key and value. Raises EngineError with turns in flight.

        A turn that was cancelled is not in flight: this waits the one step until it is out of the batch.
        """
        with self._condition:
            if any(not job.cancelled for job in (*self._inbox, *self._wave, *self._rows.jobs())):
                raise EngineError("the weights changed while turns were in flight")
            if not self._condition.wait_for(lambda: not (self._wave or self._rows.active), timeout=DRAIN_S):
                raise EngineError(f"a cancelled turn was still in the batch after {DRAIN_S:g} s")
            self._rows.forget()
            self._version = version

    def update(self, version: int, apply: Callable[[], None]) -> None:
        """Change the weights between two decode steps.

        ``apply`` runs in the engine's thread. Turns in flight go on, over the keys and values that they have; every
        other one is forgotten. When ``apply`` raises, the weights are in doubt: the engine closes and the error is
        raised here. Raises EngineError when the engine does not get to it in time. Not from two threads at once.
        """
        update = Update(version, apply)
        with self._condition:
            if self._stopping:
                raise EngineError("the engine is closed")
            self._update = update
            self._condition.notify_all()
        update.wait(UPDATE_S)

    def open(self, sessions: Iterable[str]) -> None:
        """Announce the sessions of the next group of rollouts; the barrier waits for all of them."""
        with self._condition:
            if self._barrier and not self._open:
                self._rows.forget()
            self._open.update(sessions)

    def release(self, session: str) -> None:
        with self._condition:
            self._open.discard(session)
            if self._barrier:
                self._released.add(session)  # when it came within a wave must not change which row gives way
            else:
                self._rows.release(session)
            self._condition.notify_all()

    async def generate(self, request: Request) -> Completion:
        if not request.ids:
            raise ValueError("a turn needs at least one token of context")
        if len(request.ids) >= self._rows.context or request.max_new_tokens <= 0:
            return Completion((), (), FinishReason.LENGTH, self._version)
        matcher = await self._matcher(request)
        loop = asyncio.get_running_loop()
        job = Job(request, loop.create_future(), loop, matcher)
        with self._condition:
            if self._stopping:
                raise EngineError("the engine is closed")
            self._inbox.append(job)
            self._condition.notify_all()
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._condition:
                job.cancelled = True
                self._condition.notify_all()
            raise

    async def _matcher(self, request: Request) -> LLMatcher | None:
        """What holds the turn to its grammar. To compile one takes a while, and other turns must not wait for it."""
        if request.grammar is None:
            return None
        if self._grammars is None:
            raise EngineError("a turn has a grammar, and this engine was made without any")
        try:
            return await asyncio.to_thread(self._grammars.matcher, request.grammar)
        except ValueError as error:
            raise EngineError(str(error)) from error

    def close(self) -> None:
        """Stop the thread; jobs in flight fail with EngineError. Safe to repeat."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join(timeout=60)

    def _ready(self) -> bool:
        """Whether there is something to do now (called with the lock held)."""
        if self._stopping or self._update is not None or self._rows.active or self._wave:
            return True
        if not self._barrier:
            return bool(self._inbox)
        waiting = {job.request.session for job in self._inbox if not job.cancelled}
        return bool(waiting) and self._open <= waiting

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(self._ready)
                if self._stopping:
                    self._fail(EngineError("the engine is closed"))
                    if self._update is not None:
                        self._update.end(EngineError("the engine is closed"))
                    return
                update, self._update = self._update, None
                if update is None:
                    self._gather()
            if update is not None:
                self._renew(update)
                continue
            try:
                with torch.inference_mode():
                    self._admit()
                    if self._rows.active:
                        self._decode()
            except Exception as error:
                # The engine's own failure: every turn in flight learns of it, and the thread lives on for the next.
                with self._condition:
                    self._fail(EngineError(f"{type(error).__name__}: {error}"))
                    self._rows.forget()

    def _gather(self) -> None:
        """Take up what has come in (called with the lock held); with the barrier on, as a whole wave."""
        if not self._barrier:
            self._wave += self._inbox
            self._inbox = []
        elif not self._wave and not self._rows.active:
            for session in self._released:
                self._rows.release(session)
            self._released.clear()
            self._wave = sorted(self._inbox, key=lambda job: (job.request.key, job.request.session))
            self._inbox = []

    def _renew(self, update: Update) -> None:
        try:
            with torch.no_grad():
                update.apply()
        except Exception as error:
            with self._condition:
                self._stopping = True
                self._fail(EngineError(f"the weights are in doubt: {error}"))
            update.end(error)
        else:
            with self._condition:
                self._rows.renew()
                self._version = update.version
            update.end(None)

    def _admit(self) -> None:
        self._steps_since_admission += 1
        if self._rows.active and self._steps_since_admission < ADMISSION_INTERVAL:
            return
        self._steps_since_admission = 0
        with self._condition:
            while self._wave and self._rows.has_room():
                job = self._wave[0]
                if not job.cancelled:
                    self._rows.place(job.request.session, job.request.ids, job)
                self._wave.pop(0)  # only now: a job that cannot be placed must fail with the rest
            self._condition.notify_all()
        started = time.perf_counter()
        computed, reused = self._rows.prefill()
        if computed or reused:
            self.stats.prefill_tokens += computed
            self.stats.reused_tokens += reused
            self.stats.prefill_seconds += time.perf_counter() - started

    def _decode(self) -> None:
        started = time.perf_counter()
        jobs = self._rows.jobs()
        logits = self._rows.forward()
        if self._grammars is not None:
            self._grammars.constrain(logits, [job.matcher for job in jobs])
        positions = self._rows.positions().astype(np.uint64) + np.uint64(1)
        keys = np.array([job.request.key for job in jobs], dtype=np.uint64)
        settings = [job.request.sampling for job in jobs]
        device = logits.device
        tokens, logprobs = sample(
            logits,
            torch.from_numpy(uniforms(keys, positions)).to(device),
            torch.tensor([s.temperature for s in settings], device=device),
            torch.tensor([s.top_p for s in settings], device=device),
            torch.tensor([s.top_k for s in settings], device=device),
        )
        chosen, certain = tokens.tolist(), logprobs.tolist()
        if not all(map(math.isfinite, certain)):
            raise FloatingPointError("the model's logits are not finite")
        self._rows.advance(chosen)
        finished = [
            (index, job, reason)
            for index, (job, token, logprob) in enumerate(zip(jobs, chosen, certain, strict=True))
            if (reason := self._take(job, token, logprob)) is not None
        ]
        self.stats.sampled_tokens += len(jobs)
        self.stats.decode_steps += 1
        self.stats.decode_seconds += time.perf_counter() - started
        with self._condition:
            for index, _, _ in reversed(finished):
                self._rows.park(index)
            self._condition.notify_all()
        self._deliver([(job, reason) for _, job, reason in finished])

    def _take(self, job: Job, token: int, logprob: float) -> FinishReason | None:
        """Record one token; the reason to finish, if this token gives one."""
        request = job.request
        job.append(token, logprob, self._version)
        if job.cancelled:
            return FinishReason.CANCELLED
        try:
            if request.on_token is not None:
                request.on_token(token)
            if token in request.eos:
                return FinishReason.EOS
            if job.matcher is not None and not job.matcher.consume_token(token):
                raise RuntimeError(f"the grammar lost its way: {job.matcher.get_error()}")
            watched = request.watch is not None and request.watch[token]
            if watched and request.stop is not None and request.stop(job.ids):
                return FinishReason.STOP
        except Exception as error:  # a callback's or a grammar's failure is its own turn's, and of no other
            job.error = EngineError(f"a callback of the turn failed: {type(error).__name__}: {error}")
            return FinishReason.CANCELLED
        full = len(request.ids) + len(job.ids) >= self._rows.context
        return FinishReason.LENGTH if full or len(job.ids) >= request.max_new_tokens else None

    def _deliver(self, finished: list[tuple[Job, FinishReason]]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, JobOutcome]]] = {}
        for job, reason in finished:
            by_loop.setdefault(job.loop, []).append((job, job.error or job.completion(reason)))
        for loop, batch in by_loop.items():
            post(loop, batch)

    def _fail(self, error: EngineError) -> None:
        """End every job with this error (called with the lock held)."""
        jobs = [*self._wave, *self._inbox, *self._rows.jobs()]
        self._wave, self._inbox = [], []
        for index in reversed(range(self._rows.active)):
            self._rows.park(index)
        self._condition.notify_all()
        for job in jobs:
            post(job.loop, [(job, error)])
