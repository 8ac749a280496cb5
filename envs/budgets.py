"""What one rollout may spend: the same model is a section of the config."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Budgets(BaseModel):
    """What one rollout may spend. The first spent ends it: as the policy's fault, save `wall_s`, which is ours."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    turn_tokens: int = Field(default=128, gt=0, description="Tokens sampled in one turn.")
    policy_tokens: int = Field(default=512, gt=0, description="Tokens sampled in the whole rollout.")
    context: int = Field(default=1024, gt=0, description="Tokens of the whole rollout: prompt, sampled and results.")
    calls: int = Field(default=4, ge=0, description="Valid tool calls.")
    invalid_calls: int = Field(
        default=1, ge=0, description="Rejected calls that are forgiven: each is answered with its rejection."
    )
    wall_s: float = Field(default=120.0, gt=0, description="Seconds of wall clock, tools included.")
    result_chars: int = Field(
        default=2000, gt=0, description="Characters of a result that the policy reads; the rest is cut and marked."
    )
