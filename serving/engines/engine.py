"""The engine interface: token ids in, token ids out.

Invariants: an engine never sees text and never re-tokenises; a completion's ids are exactly what was sampled, one
logprob an id, taken from the distribution that was sampled from; randomness is addressed by the request's ``key`` and
the token's position, so neither batching nor arrival order changes a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from callwright.serving.errors import UserError

StopCheck = Callable[[Sequence[int]], bool]
"""Called with the turn's ids so far, after each token that ``watch`` marks; true ends the turn. Runs off the event
loop."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw a token. ``temperature`` 0 is greedy (logprobs are then those of temperature 1)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


class FinishReason(StrEnum):
    STOP = "stop"  # the stop check said so
    EOS = "eos"  # the policy sampled an end token
    LENGTH = "length"  # max_new_tokens, or the engine's context, ran out
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to generate.

    ``ids``: the whole context. ``session`` names the rollout, so that an engine may keep its key/value cache between
    turns. ``watch``: boolean mask over the vocabulary; the stop check runs only after tokens it marks (None: after
    none). ``on_token`` is called off the event loop with each id, for streaming. ``grammar`` is EBNF that the whole
    text from these ids on must follow (see ``protocol/grammar.py``), for an engine that says ``constrains = True``;
    logprobs are then those of the constrained distribution.
    """

    ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    key: int
    session: str
    eos: frozenset[int] = frozenset()
    watch: NDArray[np.bool_] | None = None
    stop: StopCheck | None = None
    on_token: Callable[[int], None] | None = None
    grammar: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What was sampled: ``len(ids) == len(logprobs)``. ``version`` is the policy version that sampled the first id;
    ``changes`` says, in order, from which index on a later one did: (index, version)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: FinishReason
    version: int = 0
    changes: tuple[tuple[int, int], ...] = ()

    def spans(self) -> Iterator[tuple[tuple[int, ...], tuple[float, ...], int]]:
        """(ids, logprobs, version) of each stretch that one version sampled."""
        starts = [(0, self.version), *self.changes]
        ends = [*(index for index, _ in self.changes), len(self.ids)]
        for (start, version), end in zip(starts, ends, strict=True):
            yield self.ids[start:end], self.logprobs[start:end], version


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine started; tokens are sampled tokens, seconds are wall time spent in forward passes."""

    sampled_tokens: int = 0
    prefill_tokens: int = 0
    reused_tokens: int = 0
    decode_steps: int = 0
    decode_seconds: float = 0.0
    prefill_seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """Where tokens come from."""

    @property
    def version(self) -> int:
        """The policy version that the next token is sampled from."""
        ...

    def open(self, sessions: Iterable[str]) -> None:
        """Announce sessions that will run together; a deterministic engine waits for all of them at each turn."""
        ...

    async def generate(self, request: Request) -> Completion:
        """Sample one turn. Cancelling the awaiting task frees the engine's place for it.

        Raises EngineError when the engine itself failed (an infra fault, never the policy's).
        """
        ...

    def release(self, session: str) -> None:
        """Say that no further turn of the session will come."""
        ...


def require_exact(engine: type) -> None:
    """Raises UserError for a class of engine that knows its model by text alone (it says ``exact = False``)."""
    if not getattr(engine, "exact", True):
        raise UserError(
            f"{engine.__name__} gives text, not the model's tokens and logprobs: it can be evaluated, but a policy "
            "gradient needs both; train a checkpoint with engine.kind=transformers"
        )


def require_constraint(engine: type) -> None:
    """Raises UserError for a class of engine that cannot hold a turn to a grammar (it does not say
    ``constrains = True``)."""
    if not getattr(engine, "constrains", False):
        raise UserError(f"{engine.__name__} cannot hold a model to a grammar; say decoding=free")


class EngineError(RuntimeError):
    """The engine failed; the rollout that waited for it is an infra fault."""
