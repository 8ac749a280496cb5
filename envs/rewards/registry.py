"""The reward functions by name: the shipped ones, and those of a user's modules."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from callwright.envs.registry import Registry
from callwright.envs.rewards.exact import Exact
from callwright.envs.rewards.format_gated import FormatGated
from callwright.envs.rewards.otc import OTC
from callwright.envs.rewards.reward import RewardFunction
from callwright.envs.rewards.search_r1 import SearchR1
from callwright.envs.rewards.toolrl import ToolRL
from callwright.envs.rewards.torl import ToRL

REWARDS: Registry[type[RewardFunction]] = Registry(
    "reward function",
    {
        "exact": Exact,
        "search_r1": SearchR1,
        "torl": ToRL,
        "toolrl": ToolRL,
        "otc": OTC,
        "format_gated": FormatGated,
    },
)


class RewardSpec(BaseModel):
    """What an ended rollout earns."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="exact", description="The reward function; listed at the end of this page.")
    weights: dict[str, float] = Field(default_factory=dict, description="Its weights, where they are not its own.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Refuse an unknown function or weight here, in one line, not when the first rollout is graded."""
        if self.name not in REWARDS:
            raise ValueError(REWARDS.missing(self.name))
        try:
            self.function()
        except ValidationError as error:
            first = error.errors()[0]
            known = ", ".join(REWARDS[self.name].model_fields)
            weight = ".".join(map(str, first["loc"]))
            raise ValueError(f"weights.{weight}: {first['msg']} ({self.name} has {known})") from None
        return self

    @property
    def label(self) -> str:
        """The name, and the weights that are not the function's own: ``torl failing_code=-0.5``."""
        return " ".join([self.name, *(f"{name}={value:g}" for name, value in self.weights.items())])

    def function(self) -> RewardFunction:
        """The function with its weights."""
        return REWARDS[self.name].model_validate(self.weights)
