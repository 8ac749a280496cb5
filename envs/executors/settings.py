"""The executors' part of a config: what a person can set, with the defaults that are meant to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from callwright.envs.executors.sandbox import Limits
from callwright.envs.executors.tool_kind import ToolSettings
from callwright.envs.executors.web.settings import File


class CodeSettings(ToolSettings):
    """The code tool: commands in a sandbox."""

    backend: Literal["local", "sandboxfusion"] = "local"
    """`local` runs commands on this machine; `sandboxfusion` sends them to a server of that kind."""
    url: str | None = None
    """The address of the `sandboxfusion` server, such as `http://sandbox.example:8080`."""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """`none` runs model-written commands bare: for a machine that is itself thrown away afterwards."""
    workers: int = Field(default=2, gt=0)
    """Commands run at once."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Time limit of one command; past it the call is the policy's fault."""
    memory_mb: int = Field(default=512, ge=64)
    """Memory limit of one command."""
    output_kb: int = Field(default=16, gt=0)
    """Output kept of one command; the rest is cut and the record says so."""

    @model_validator(mode="after")
    def _backend_has_its_address(self) -> Self:
        if self.backend == "sandboxfusion" and not (self.url or "").startswith(("http://", "https://")):
            raise ValueError(f"the backend sandboxfusion needs the http address of its server in url, not {self.url!r}")
        if self.backend != "sandboxfusion" and self.url is not None:
            raise ValueError(f"url is the address of a sandboxfusion server, and the backend is {self.backend}")
        return self

    @property
    def limits(self) -> Limits:
        """The bounds of one command; those without a key have one value for everybody."""
        return Limits(
            wall_s=self.timeout_s,
            cpu_s=max(1, round(self.timeout_s)),
            memory_mb=self.memory_mb,
            output_bytes=self.output_kb * 1024,
        )


Broker = Literal["memory", "sqlite", "servicebus"]
VARIABLE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class AzureSettings(ToolSettings):
    """The azure tool: one Azure CLI command a call, against Azurite (`make azure`); without it every call is an infra
    fault."""

    folder: File = Path(".azure-tools")
    """Where `make azure` put the Azure CLI and Azurite."""
    workers: int = Field(default=2, gt=0)
    """Commands run at once."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Time limit of one command; with `executors.queue_s` on top it is the call's deadline."""
    output_kb: int = Field(default=16, gt=0)
    """Output kept of one command; the rest is cut and the record says so."""
    allow_live: bool = False
    """Run in the subscription that this machine is signed in to, in place of Azurite: reading alone, in one group."""
    resource_group: str | None = None
    """The one resource group that live commands may name; it and `allow_live` are set together or not at all."""

    @model_validator(mode="after")
    def _live_needs_a_group(self) -> Self:
        if self.allow_live != (self.resource_group is not None):
            raise ValueError("allow_live and resource_group go together: set both, or neither")
        return self


class ExecutorSettings(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: tuple[str, ...] = ("web", "code")
    broker: Broker = "memory"
    queues: Path = Field(default=Path("runs/queues.db"), description="the file of the sqlite broker")
    servicebus_env: str = Field(
        default="CALLWRIGHT_SERVICEBUS", pattern=VARIABLE_NAME, description="environment variable of the connection"
    )
    servicebus_prefix: str = Field(default="", description="of the queues' names in the namespace")
    external: tuple[str, ...] = Field(default=(), description="of the tools, those whose workers run elsewhere")
    worker_wait_s: float = Field(default=30.0, gt=0, description="a start waits so long for an external worker")
    lanes: int = Field(default=64, ge=1, description="unanswered calls of one tool at once; more wait for a lane")
    timeout_s: float = Field(default=60.0, gt=0, description="of one call, from asking for a lane to the reply")
    deadline_s: float = Field(default=45.0, gt=0, description="of one run in an executor; later it is stuck")
    journal: Path = Field(default=Path("runs/journal.db"), description="results of calls that are not settled yet")
    health_port: int | None = Field(
        default=None, description="of a worker process; none: no endpoint, 0: any free port"
    )
    lease_s: float = Field(default=30.0, gt=0, description="after a worker's death its calls are free again")
    per_tool: Mapping[str, ToolSettings] = Field(default_factory=dict, description="where they are not the defaults")
