"""Which session sits in which key/value row, and the forward passes over them.

Invariants: rows ``[0, active)`` have a job, the rest are parked; ``tokens[row, :known]`` is what the session's context
is, ``lengths[row]`` says how many of those have keys and values; an active row lacks exactly its last known token,
which the next decode step feeds. Active rows stand in order of length, but for those placed since the last prefill.
What other weights computed serves the turn that it was computed for, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from callwright.serving.engines.by_length import ByLength
from callwright.serving.engines.slots import Slots

J = TypeVar("J")

MAX_PREFILL_TOKENS = 16_384  # bounds the activations of one prefill pass
MIN_SHARED_PREFIX = 16  # a shorter common prefix is cheaper to compute than to wait for


class Rows(Generic[J]):
    """Row bookkeeping for one model. Not thread-safe: the engine's thread owns it; what moves rows or names runs under
    its lock (``place``, ``park``, ``release``, ``forget``, ``renew``)."""

    def __init__(self, model: Any, rows: int, context: int) -> None:
        parameter = next(model.parameters())
        self._model = model
        self._slots = Slots(model.config, rows, context, parameter.device, parameter.dtype)
        self._device = parameter.device
        self.context = context
        self.active = 0
        self._order = ByLength(context)
        self._capacity = rows
        self._tokens: NDArray[np.int64] = np.zeros((rows, context), dtype=np.int64)
        self._lengths: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self._known: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self._used: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self._sessions: list[str | None] = [None] * rows
        self._jobs: list[J | None] = [None] * rows
        self._stale: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._clock = 0

    def jobs(self) -> list[J]:
        """The jobs of the active rows, in row order."""
        return [job for job in self._jobs[: self.active] if job is not None]

    def has_room(self) -> bool:
        """Whether a row can be had now; parked rows give way, active ones never."""
        return self.active < self._capacity

    def release(self, session: str) -> None:
        """The session will not come back; its row may serve as a shared prefix until it is needed."""
        for row, held in enumerate(self._sessions):
            if held == session:
                self._sessions[row] = None

    def forget(self) -> None:
        """Drop what parked rows hold, as if they were new: it belongs to other weights, or to another group."""
        self._lengths[self.active :] = 0
        self._used[self.active :] = 0
        self._sessions[self.active :] = [None] * (self._capacity - self.active)

    def renew(self) -> None:
        """Other weights from here on: active rows keep what they hold to the end of their turn, and share it no more;
        parked rows forget."""
        self.forget()
        self._stale[: self.active] = True

    def place(self, session: str, ids: Sequence[int], job: J) -> None:
        """Make a parked row active for the whole context of a session, keeping what it already computed."""
        context = np.asarray(ids, dtype=np.int64)
        row = self._row_for(session)
        self._swap(row, self.active)
        row = self.active
        self.active += 1
        kept = _common(self._tokens[row, : self._lengths[row]], context)
        self._tokens[row, : len(context)] = context
        self._lengths[row] = min(kept, len(context) - 1)
        self._known[row] = len(context)
        self._sessions[row], self._jobs[row] = session, job

    def park(self, row: int) -> None:
        """Take an active row out of the batch. Park from the highest row down."""
        self._jobs[row] = None
        self._clock += 1
        self._used[row] = self._clock
        if row < self._order.settled:
            for swap in self._order.leave(row):
                self._swap(*swap)
            row = self._order.settled
        self.active -= 1
        self._swap(row, self.active)
        if self._stale[self.active]:
            self._stale[self.active] = False
            self._lengths[self.active] = self._used[self.active] = 0
            self._sessions[self.active] = None

    def prefill(self) -> tuple[int, int]:
        """Compute what active rows lack, sharing prefixes between rows; returns (tokens computed, tokens shared)."""
        missing = [row for row in range(self.active) if self._known[row] - 1 > self._lengths[row]]
        computed = shared = 0
        while missing:
            wave, later = self._leaders(missing)
            for row in wave:
                shared += self._share(row)
            computed += sum(int(self._known[row] - 1 - self._lengths[row]) for row in wave)
            self._compute(wave)
            missing = later
        while self._order.settled < self.active:
            for swap in self._order.enter(int(self._known[self._order.settled])):
                self._swap(*swap)
        return computed, shared

    def forward(self) -> torch.Tensor:
        """One decode step over the active rows; returns the logits [active, vocab] of the next token."""
        positions = self._lengths[: self.active]
        ids = self._tokens[np.arange(self.active), positions]
        logits = []
        for first, count in self._order.passes(positions.tolist()):
            rows = slice(first, first + count)
            span = int(positions[rows].max()) + 1
            logits.append(self._pass(first, ids[rows, None], positions[rows, None], span)[:, -1])
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def positions(self) -> NDArray[np.int64]:
        """Per active row, the position of the token that the last ``forward`` fed."""
        return self._lengths[: self.active].copy()

    def advance(self, tokens: Sequence[int]) -> None:
        """Append one sampled token to each active row."""
        n = self.active
        self._lengths[:n] += 1
        fits = self._lengths[:n] < self.context
        rows = np.arange(n)[fits]
        self._tokens[rows, self._lengths[:n][fits]] = np.asarray(tokens, dtype=np.int64)[fits]
        self._known[:n] = self._lengths[:n] + 1

    def _row_for(self, session: str) -> int:
        parked = range(self.active, self._capacity)
        for row in parked:  # not the active ones: a cancelled turn of the same session may not have left yet
            if self._sessions[row] == session:
                return row
        return min(parked, key=lambda row: (self._sessions[row] is not None, self._used[row]))

    def _leaders(self, missing: list[int]) -> tuple[list[int], list[int]]:
        """Split rows into those to compute now and those that gain by waiting for one of them."""
        wave: list[int] = []
        later: list[int] = []
        for row in missing:
            context = self._tokens[row, : self._known[row] - 1]
            best_now = max(int(self._lengths[row]), self._best_donor(row, context)[1])
            best_wave = max(
                (_common(self._tokens[other, : self._known[other] - 1], context) for other in wave), default=0
            )
            (later if best_wave >= best_now + MIN_SHARED_PREFIX else wave).append(row)
        return wave, later

    def _best_donor(self, row: int, context: NDArray[np.int64]) -> tuple[int, int]:
        """(row, length) of the longest computed prefix of ``context`` that another row holds."""
        width = len(context)
        equal = self._tokens[:, :width] == context
        equal &= np.arange(width) < self._lengths[:, None]
        lengths = np.where(equal.all(1), width, equal.argmin(1))
        lengths[row] = 0
        lengths[self._stale] = 0
        donor = int(lengths.argmax())
        return donor, int(lengths[donor])

    def _share(self, row: int) -> int:
        context = self._tokens[row, : self._known[row] - 1]
        donor, length = self._best_donor(row, context)
        gain = length - int(self._lengths[row])
        if gain < MIN_SHARED_PREFIX:
            return 0
        self._slots.copy(donor, row, length)
        self._lengths[row] = length
        return gain

    def _compute(self, rows: list[int]) -> None:
        """Fill in keys and values up to each row's last known token but one, in passes over neighbouring rows."""
        for run in _runs(rows):
            start = 0
            while start < len(run):
                width = max(1, int(max(self._known[r] - 1 - self._lengths[r] for r in run[start:])))
                chunk = min(width, MAX_PREFILL_TOKENS)
                count = max(1, MAX_PREFILL_TOKENS // chunk)
                batch = run[start : start + count]
                self._fill(batch[0], len(batch), chunk)
                start += count

    def _fill(self, first: int, count: int, chunk: int) -> None:
        rows = slice(first, first + count)
        goal = self._known[rows] - 1
        while (self._lengths[rows] < goal).any():
            lengths = self._lengths[rows]
            width = min(chunk, int((goal - lengths).max()))
            # Rows that need less than the widest one compute junk behind their end: overwritten later, never attended
            # to.
            positions = np.minimum(lengths[:, None] + np.arange(width), self.context - 1)
            ids = np.take_along_axis(self._tokens[rows], positions, 1)
            self._pass(first, ids, positions, int(positions.max()) + 1)
            self._lengths[rows] = np.minimum(lengths + width, goal)

    def _pass(self, first: int, ids: NDArray[np.int64], positions: NDArray[np.int64], span: int) -> torch.Tensor:
        where = torch.from_numpy(np.ascontiguousarray(positions)).to(self._device)
        mask = self._slots.aim(first, where, span)
        output = self._model(
            input_ids=torch.from_numpy(np.ascontiguousarray(ids)).to(self._device),
            attention_mask=mask,
            position_ids=where,
            past_key_values=self._slots.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits
        return logits

    def _swap(self, a: int, b: int) -> None:
        if a == b:
            return
        self._slots.swap(a, b, int(max(self._lengths[a], self._lengths[b])))
        for array in (self._tokens, self._lengths, self._known, self._used, self._stale):
            array[[a, b]] = array[[b, a]]
        self._sessions[a], self._sessions[b] = self._sessions[b], self._sessions[a]
        self._jobs[a], self._jobs[b] = self._jobs[b], self._jobs[a]


def _common(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """Length of the common prefix."""
    width = min(len(a), len(b))
    differs = a[:width] != b[:width]
    return int(differs.argmax()) if differs.any() else width


def _runs(rows: list[int]) -> list[list[int]]:
    """Group ascending row numbers into runs of neighbours."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][-1] == row - 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
