"""The executors' part of a config: what a person can set, with the defaults that are meant to be kept."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from callwright.envs.executors.sandbox import Limits
from callwright.envs.executors.web.settings import WebSettings


class CodeSettings(BaseModel):
    """The sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    workers: int = Field(default=2, ge=1, description="programs that run at once")
    limits: Limits = Limits()


class ExecutorSettings(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: tuple[str, ...] = ("web", "code")
    lanes: int = Field(default=64, ge=1, description="unanswered calls of one tool at once; more wait for a lane")
    timeout_s: float = Field(default=60.0, gt=0, description="of one call, from asking for a lane to the reply")
    deadline_s: float = Field(default=45.0, gt=0, description="of one run in an executor; later it is stuck")
    web: WebSettings = WebSettings()
    code: CodeSettings = CodeSettings()

    def concurrency(self, tool: str) -> int:
        """How many calls a tool's worker takes from its queue at once: what its executor can run at once."""
        return self.code.workers if tool == "code" else 8
