"""The executors' part of a config: what a person can set, with the defaults that are meant to be kept."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from callwright.envs.executors.sandbox import Limits
from callwright.envs.executors.web.settings import WebSettings


class CodeSettings(BaseModel):
    """Where commands run. ``url`` is the server's, for sandboxfusion alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: Literal["local", "sandboxfusion"] = "local"
    url: str | None = None
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    workers: int = Field(default=2, ge=1, description="programs that run at once")
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _backend_has_its_address(self) -> Self:
        check_address(self.backend, self.url)
        return self


def check_address(backend: str, url: str | None) -> None:
    """Raises ValueError for a server without an address, or an address that nothing would use."""
    if backend == "sandboxfusion" and not (url or "").startswith(("http://", "https://")):
        raise ValueError(f"the backend sandboxfusion needs the http address of its server in url, not {url!r}")
    if backend != "sandboxfusion" and url is not None:
        raise ValueError(f"url is the address of a sandboxfusion server, and the backend is {backend}")


VARIABLE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class AzureSettings(BaseModel):
    """The Azure CLI: against the emulator, or, where a person allows it, reading one real resource group."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path = Field(default=Path(".azure-tools"), description="where make azure put the CLI and the emulator")
    workers: int = Field(default=2, ge=1, description="commands that run at once")
    wall_s: float = Field(default=60.0, gt=0, description="seconds from start to end of one command")
    output_bytes: int = Field(default=16 * 1024, ge=1, description="kept of each of stdout and stderr; the rest is cut")
    allow_live: bool = Field(default=False, description="run in the signed-in subscription instead of the emulator")
    resource_group: str | None = Field(default=None, description="the one resource group that live commands may read")

    @model_validator(mode="after")
    def _live_needs_a_group(self) -> Self:
        if self.allow_live != (self.resource_group is not None):
            raise ValueError("allow_live and resource_group go together: set both, or neither")
        return self


class ExecutorSettings(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: tuple[str, ...] = ("web", "code")
    broker: Literal["memory", "sqlite", "servicebus"] = "memory"
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
    web: WebSettings = WebSettings()
    code: CodeSettings = CodeSettings()
    azure: AzureSettings = AzureSettings()

    def concurrency(self, tool: str) -> int:
        """How many calls a tool's worker takes from its queue at once: what its executor can run at once."""
        own = {"web": self.web.workers, "code": self.code.workers, "azure": self.azure.workers}
        return own.get(tool, 8)
