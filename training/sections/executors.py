"""What runs the calls."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, create_model, model_validator

from callwright.envs.executors.registry import TOOLS
from callwright.envs.executors.settings import VARIABLE_NAME, AzureSettings, Broker, CodeSettings
from callwright.envs.executors.tool_kind import ToolSettings
from callwright.envs.executors.web.settings import WebSettings
from callwright.training.sections.base import Names, Positive, Seconds, Section


class Executors(Section):
    """What runs the calls, one section a tool, those of a module in `plugins` among them (`workers`, `timeout_s`)."""

    # The sections of other tools than the shipped ones; ``_sections_of_other_tools`` lets nothing else in.
    model_config = ConfigDict(extra="allow")

    lanes: Positive = 64
    """Unanswered calls of one tool at once; more wait for a lane."""
    queue_s: Seconds = 60.0
    """What a call may wait on top of its tool's deadline, for a lane and a free worker; past it the fault is ours."""
    broker: Broker | None = None
    """Where commands and results queue: in the process, in a file for the processes of a machine, or in Service Bus;
    null is `sqlite`, but `memory` in a run that runs all its calls itself."""
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
    code: CodeSettings = CodeSettings()
    azure: AzureSettings = AzureSettings()

    def of(self, tool: str) -> ToolSettings:
        """The section of a tool; its defaults where the config has none."""
        section: ToolSettings = getattr(self, tool, None) or TOOLS[tool].settings()
        return section

    @model_validator(mode="before")
    @classmethod
    def _sections_of_other_tools(cls, data: Any) -> Any:
        """Read them as declared fields are read: by their tools' own settings, and closed to unknown names."""
        if not isinstance(data, dict):
            return data
        others: dict[str, Any] = {
            name: (kind.settings, kind.settings()) for name, kind in TOOLS.items() if name not in cls.model_fields
        }
        given = {name: value for name, value in data.items() if name not in cls.model_fields}
        read = create_model("OtherTools", __base__=Section, **others).model_validate(given)
        return {**data, **{name: getattr(read, name) for name in others}}

    @model_validator(mode="after")
    def _external_workers_can_be_reached(self) -> Self:
        for name in self.external:
            if name not in TOOLS:
                raise ValueError(f"external: {TOOLS.missing(name)}")
        if self.external and self.broker == "memory":
            raise ValueError("external workers need a broker that processes share: executors.broker=sqlite or null")
        return self

    @property
    def broker_of_run(self) -> Broker:
        """Of the run itself. A file of its own would give it nothing where no other process is there to read it."""
        return self.broker or ("sqlite" if self.external else "memory")

    @property
    def broker_of_worker(self) -> Broker:
        """Of whoever else looks into the queues."""
        return self.broker or "sqlite"
