"""The token-exact record of one rollout.

Invariants, by construction: a trajectory is a list of segments, each sampled (ids, logprobs, policy version) or given
(ids); ``mask`` is 1 exactly on sampled ids; ``len(ids) == len(mask) == len(logprobs)``; sampled ids are never
re-tokenised. A trajectory ends in exactly one outcome, and a finished trajectory cannot change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """Who owns the way a rollout ended."""

    SCORED = "scored"
    POLICY_FAULT = "policy_fault"
    INFRA_FAULT = "infra_fault"
    LATE = "late"
    CANCELLED = "cancelled"

    @property
    def in_baseline(self) -> bool:
        """Whether the row counts in its group's mean and spread, and in the loss."""
        return self in (Outcome.SCORED, Outcome.POLICY_FAULT)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Ids the policy sampled, with the logprob of each under the sampling distribution (nats)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int = 0

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} sampled ids but {len(self.logprobs)} logprobs")


@dataclass(frozen=True, slots=True)
class Given:
    """Ids that came from outside the policy: the prompt, or a tool's result."""

    ids: tuple[int, ...]


Segment = Sampled | Given


@dataclass(slots=True)
class Trajectory:
    """One rollout's tokens. ``segments[0]`` is the prompt (given); everything after it is the completion."""

    segments: list[Segment] = field(default_factory=list)
    outcome: Outcome | None = None
    cause: str = ""
    _context: list[int] = field(init=False, repr=False, compare=False, default_factory=list)
    _sampled: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        for segment in self.segments:
            self._count(segment)

    def append(self, segment: Segment) -> None:
        """Splice a segment at the end. Raises RuntimeError once the trajectory has an outcome."""
        if self.outcome is not None:
            raise RuntimeError(f"the trajectory already ended: {self.outcome}")
        if segment.ids:
            self.segments.append(segment)
            self._count(segment)

    def _count(self, segment: Segment) -> None:
        self._context.extend(segment.ids)
        self._sampled += len(segment.ids) if isinstance(segment, Sampled) else 0

    def finish(self, outcome: Outcome, cause: str = "") -> None:
        """Set the one outcome. Terminal states are final: a second call raises RuntimeError."""
        if self.outcome is not None:
            raise RuntimeError(f"the trajectory already ended: {self.outcome}")
        self.outcome = outcome
        self.cause = cause

    @property
    def ids(self) -> list[int]:
        return self._context.copy()

    @property
    def context(self) -> Sequence[int]:
        """The ids themselves, not a copy, so that a turn costs the same however long the rollout is. They grow with it:
        read them, and keep none."""
        return self._context

    @property
    def mask(self) -> list[int]:
        return [int(isinstance(segment, Sampled)) for segment in self.segments for _ in segment.ids]

    @property
    def logprobs(self) -> list[float]:
        """Per id: the sampling logprob where sampled, 0.0 where given."""
        return list(self._logprobs())

    @property
    def prompt_ids(self) -> list[int]:
        return list(self.segments[0].ids) if self.segments else []

    @property
    def sampled_tokens(self) -> int:
        return self._sampled

    def _logprobs(self) -> Iterator[float]:
        for segment in self.segments:
            if isinstance(segment, Sampled):
                yield from segment.logprobs
            else:
                yield from (0.0 for _ in segment.ids)


def completion(trajectory: Trajectory) -> tuple[Sequence[int], Sequence[int], Sequence[float]]:
    """(ids, mask, logprobs) of everything after the prompt; three sequences of one length."""
    start = len(trajectory.prompt_ids)
    return trajectory.ids[start:], trajectory.mask[start:], trajectory.logprobs[start:]
