"""What runs the calls."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from callwright.envs.executors.settings import VARIABLE_NAME, check_address
from callwright.envs.executors.web.settings import WebSettings
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.training.sections.base import Names, Positive, Seconds, Section

KNOWN_TOOLS = tuple(tool.name for tool in DEFAULT_TOOLS)


class Code(Section):
    """The code tool: commands in a sandbox."""

    backend: Literal["local", "sandboxfusion"] = "local"
    """`local` runs commands on this machine; `sandboxfusion` sends them to a server of that kind."""
    url: str | None = None
    """The address of the `sandboxfusion` server, such as `http://sandbox.example:8080`."""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """`none` runs model-written commands bare: for a machine that is itself thrown away afterwards."""
    workers: Positive = 2
    """Commands run at once."""
    timeout_s: Seconds = 10.0
    """Time limit of one command; past it the call is the policy's fault."""
    memory_mb: Positive = 512
    """Memory limit of one command."""
    output_kb: Positive = 16
    """Output kept of one command; the rest is cut and the record says so."""

    @model_validator(mode="after")
    def _backend_has_its_address(self) -> Self:
        check_address(self.backend, self.url)
        return self


class Azure(Section):
    """The azure tool: one Azure CLI command a call, against Azurite (`make azure`); without it every call is an infra
    fault."""

    folder: str = ".azure-tools"
    """Where `make azure` put the Azure CLI and Azurite."""
    workers: Positive = 2
    """Commands run at once."""
    timeout_s: Seconds = 60.0
    """Time limit of one command; with `executors.queue_s` on top it is the call's deadline."""
    output_kb: Positive = 16
    """Output kept of one command; the rest is cut and the record says so."""
    allow_live: bool = False
    """Run in the subscription that this machine is signed in to, in place of Azurite: reading alone, in one group."""
    resource_group: str | None = None
    """The one resource group that live commands may name; it and `allow_live` are set together or not at all."""

    @model_validator(mode="after")
    def _live_needs_a_group(self) -> Self:
        """Refuse half of the two, as the executor would."""
        if self.allow_live != (self.resource_group is not None):
            raise ValueError("allow_live and resource_group go together: set both, or neither")
        return self


class Executors(Section):
    """What runs the calls, one section a tool."""

    lanes: Positive = 64
    """Unanswered calls of one tool at once; more wait for a lane."""
    queue_s: Seconds = 60.0
    """What a call may wait on top of its tool's deadline, for a lane and a free worker; past it the fault is ours."""
    broker: Literal["memory", "sqlite", "servicebus"] = "memory"
    """Where commands and results queue: in the process, in a file for the processes of a machine, or in Service Bus."""
    queues: str = "runs/queues.db"
    """File of the `sqlite` broker; it and its folder are made where they are missing."""
    servicebus_env: Annotated[str, Field(pattern=VARIABLE_NAME)] = "CALLWRIGHT_SERVICEBUS"
    """Name of the environment variable that holds the connection string of the `servicebus` broker."""
    servicebus_prefix: str = ""
    """Begins every queue's name there: `commandqueue-TOOL`, `presencequeue-TOOL`, `rewardqueue`, all with sessions."""
    external: Names = ()
    """Tools whose workers are other processes (`callwright worker`); a start waits `queue_s` for one of each."""
    lease_s: Seconds = 30.0
    """How long after a worker's death another may take over its calls. Renewed while a call runs."""
    journal: str = "runs/journal.db"
    """File with the results of calls that ran and are not settled yet; the workers of a broker share it."""
    health_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Port of a worker process for /healthz and /metrics, on 127.0.0.1; 0 takes any free one, null has none."""
    web: WebSettings = WebSettings()
    code: Code = Code()
    azure: Azure = Azure()

    @model_validator(mode="after")
    def _external_workers_can_be_reached(self) -> Self:
        for name in self.external:
            if name not in KNOWN_TOOLS:
                raise ValueError(f"external: there is no tool {name}; there are {', '.join(KNOWN_TOOLS)}")
        if self.external and self.broker == "memory":
            raise ValueError("external workers need a broker that processes share: set executors.broker=sqlite")
        return self
