"""When a run warns of itself, and when it ends itself."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from callwright.training.sections.base import Positive, Rate, Section, Share

AlarmName = Literal[
    "entropy_low",
    "entropy_high",
    "length",
    "repeated_ngrams",
    "valid_call_rate",
    "tool_rate",
    "reward_without_answer",
    "zero_variance_share",
]


class Alarms(Section):
    """Warnings of a run that goes wrong: each holds a number of metrics.jsonl, as a mean over batches, against its
    threshold; null switches one off. docs/operations.md says what each means."""

    window: Positive = 3
    """Batches of the mean."""
    entropy_low: Rate | None = 0.002
    """Entropy (nats a token) below this: the policy has stopped to try anything else."""
    entropy_high: Rate | None = 2.0
    """Entropy above this: the policy writes noise."""
    length: Share | None = 0.8
    """Share of its budget, `turn_tokens` or `policy_tokens`, that a rollout's sampled tokens take, above this."""
    repeated_ngrams: Share | None = 0.25
    """Share of 4-grams that repeat an earlier one of their turn, above this."""
    valid_call_rate: Share | None = 0.5
    """Accepted calls over attempted ones, below this."""
    tool_rate: Share | None = 0.25
    """Calls a rollout below this share of the highest mean so far."""
    reward_without_answer: Share | None = 0.1
    """Share of the batch's reward that went to rollouts without an answer, above this."""
    zero_variance_share: Share | None = 0.98
    """Share of groups whose rewards are all equal, above this."""
    stop: Annotated[tuple[AlarmName, ...], Field(strict=False)] = ()
    """Alarms that end the run, with exit code 1; the checkpoint with the best success then stays beside the newest
    `checkpoint.keep`."""

    @model_validator(mode="after")
    def _stops_are_on(self) -> Self:
        for name in self.stop:
            if getattr(self, name) is None:
                raise ValueError(f"stop: the alarm {name} is off; set alarms.{name}, or leave it out of alarms.stop")
        return self
