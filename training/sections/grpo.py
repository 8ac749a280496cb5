"""Policy-gradient training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from callwright.serving.queues.faults import FaultSettings
from callwright.training.sections.base import Count, Free, Positive, Rate, Seconds, Section, Share

LatePolicy = Literal["drop", "wait", "zero"]


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
    """A batch closes after this long; what comes later is late."""
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
    trl: Free = Field(default_factory=dict)
    """Passed unrenamed to trl.GRPOConfig (loss_type, epsilon_high, num_iterations, learning_rate, ...)."""
