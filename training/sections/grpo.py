"""Policy-gradient training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from callwright.serving.queues.faults import FaultSettings
from callwright.training.sections.base import Count, Free, Positive, Rate, Seconds, Section, Share

LatePolicy = Literal["drop", "wait", "zero"]


class Asynchronous(Section):
    """Rollouts go on while the policy trains, from a copy of the weights that every batch renews."""

    max_staleness: Count = 1
    """Batches that the policy may have trained on since a group's first token: a group starts only within it, so that
    nothing generated is thrown away. 0 waits for each batch's weights, as the synchronous order does."""
    close_at: Annotated[int, Field(ge=2)] | None = None
    """A group that the trainer waits for closes once so many of its rollouts have ended, and the rest is late; null
    waits for all of them until `deadline_s`."""


class Grpo(Section):
    """GRPO through TRL."""

    steps: Count = 40
    """Batches of rollouts; each is used for `trl.num_iterations` updates."""
    minutes: Seconds | None = None
    """Wall limit: stop after the step that passes it, checkpoint and evaluate."""
    prompts_per_step: Positive = 32
    """Tasks a batch."""
    num_generations: Annotated[int, Field(ge=2)] = 8
    """Rollouts a task: the group that a reward is compared with."""
    micro_batch: Positive | None = None
    """Rows of one forward and backward pass, at most; null takes the whole batch at once."""
    temperature: Rate = 1.0
    """Sampling temperature."""
    deadline_s: Seconds = 120.0
    """A batch closes after this long, counted for each group from its start if asynchronous; what comes later is
    late."""
    late: LatePolicy = "drop"
    """Rollouts that are late or lost: `drop` leaves them out of their groups; `wait` holds the batch open as long as
    their own wall clocks allow; `zero` counts them as 0, which poisons the baseline and is there to show it."""
    faults: FaultSettings | None = None
    """Faults put into the reward queue on purpose; null leaves the queue alone and keeps no log of it."""
    max_infra_share: Share = 0.25
    """The run stops and says why when more than this share of a batch failed through no fault of the policy."""
    permute_rewards: bool = False
    """Control experiment: rewards are shuffled over the batch, so that nothing can be learned from them."""
    resample_zero_variance: bool = False
    """Replace groups whose rewards are all equal by fresh ones, once a step."""
    asynchronous: Asynchronous | None = None
    """Train while the next batches are rolled out; null waits for each batch (the synchronous order)."""
    dppo_threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Leave out tokens whose probability the policy has moved further than this, in the direction of their advantage,
    from what it was when they were sampled (DPPO's binary total variation); null leaves none out."""
    trl: Free = Field(default_factory=dict)
    """Passed unrenamed to trl.GRPOConfig (loss_type, epsilon_high, num_iterations, learning_rate, ...)."""

    @model_validator(mode="after")
    def _close_leaves_a_group(self) -> Self:
        """Refuse an early close that cannot happen, or that would end every run."""
        close_at = None if self.asynchronous is None else self.asynchronous.close_at
        if close_at is None:
            return self
        late = 1 - close_at / self.num_generations
        if late < 0:
            raise ValueError(f"asynchronous.close_at {close_at} is more than num_generations {self.num_generations}")
        if late > self.max_infra_share:
            raise ValueError(
                f"asynchronous.close_at {close_at} of {self.num_generations} may leave {late:.2f} of a batch late, and "
                f"max_infra_share {self.max_infra_share:g} would stop the run: raise one of the two"
            )
        return self

    @model_validator(mode="after")
    def _faults_keep_to_a_batch(self) -> Self:
        if self.faults is not None and self.asynchronous is not None:
            raise ValueError("faults are put in and logged batch by batch, and asynchronous batches overlap")
        return self
