"""What a config may hold: the root's own keys, and one frozen model a section (training/sections/).

Imports without torch. Unknown keys are refused. The line under each key is its documentation: docs/configuration.md is
made from it. The same keys run the small model on two cores and a 4B model on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, Field, model_validator

from callwright.envs.budgets import Budgets
from callwright.envs.executors.registry import TOOLS
from callwright.envs.rewards.registry import RewardSpec
from callwright.serving.gateway.settings import GatewaySettings
from callwright.training.sections.alarms import Alarms
from callwright.training.sections.base import Count, Names, Section
from callwright.training.sections.engine import Engine
from callwright.training.sections.evaluation import Eval
from callwright.training.sections.executors import Executors
from callwright.training.sections.grpo import Grpo
from callwright.training.sections.model import Model
from callwright.training.sections.records import Checkpoint, Merge, Tracking
from callwright.training.sections.tasks import Tasks
from callwright.training.sections.warm_start import WarmStart


class Config(Section):
    """A whole run: these keys and the sections below."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    """The run folder is runs/NAME."""
    plugins: Names = ()
    """Modules that declare tools, task families, reward functions or benchmarks of your own (docs/tutorial.md): a file,
    beside the config or in the current folder, or a module's name."""
    seed: Count = 0
    """Root of every random number: tasks, sampling and initialisation are addressed from it."""
    deterministic: bool = False
    """Fix admission and turn order: bit-equal on a rerun and on a resume, a little slower."""
    dialect: Literal["tags", "execute", "hermes"] = "tags"
    """How a model writes calls."""
    decoding: Literal["free", "grammar"] = "free"
    """`grammar` holds each turn to what its dialect and tools allow, where `engine.kind` can; `train` takes it with
    `transformers`, and then trains the distribution that the grammar leaves."""
    tools: Names = ("web", "code")
    """Tools that are declared to the model and run."""
    system_prompt: Literal["none", "full"] = "full"
    """`full` explains the protocol and the tools; `none` suits a model that was warm-started on it."""
    model: Model = Model()
    engine: Engine = Engine()
    executors: Executors = Executors()
    budgets: Budgets = Budgets()
    tasks: Tasks = Tasks()
    reward: RewardSpec = RewardSpec()
    warm_start: WarmStart = WarmStart()
    grpo: Grpo = Grpo()
    eval: Eval = Eval()
    alarms: Alarms = Alarms()
    checkpoint: Checkpoint = Checkpoint()
    tracking: Tracking = Tracking()
    merge: Merge = Merge()
    serve: GatewaySettings = GatewaySettings()

    @model_validator(mode="after")
    def _an_adapter_to_send(self) -> Self:
        if self.engine.vllm.sync == "lora" and self.model.lora is None:
            raise ValueError("engine.vllm.sync=lora sends an adapter: set model.lora")
        return self

    @model_validator(mode="after")
    def _tools_are_known(self) -> Self:
        for name in self.tools:
            if name not in TOOLS:
                raise ValueError(f"tools: {TOOLS.missing(name)}")
        return self

    @model_validator(mode="after")
    def _faults_meet_every_record(self) -> Self:
        if self.grpo.faults is not None and self.executors.external:
            raise ValueError("grpo.faults act on the records of this process alone: leave executors.external empty")
        return self

    @model_validator(mode="after")
    def _order_is_fixed_in_one_mode(self) -> Self:
        if self.deterministic and self.grpo.asynchronous is not None:
            raise ValueError("deterministic fixes the synchronous order: set grpo.asynchronous=null")
        return self


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The models inside a field's type: `Lora | None` holds Lora, `dict[str, FamilySpec]` holds FamilySpec."""
    return [
        kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type) and issubclass(kind, BaseModel)
    ]


def config_keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """(dotted key, the model that holds it, its name there) of every key; NAME stands for a key of a free name."""
    for name, field in model.model_fields.items():
        yield prefix + name, model, name
        below = f"{prefix}{name}.NAME." if get_origin(field.annotation) is dict else f"{prefix}{name}."
        for section in sections_in(field.annotation):
            yield from config_keys(section, below)
    if model is Executors:
        for name, kind in TOOLS.items():
            if name not in model.model_fields:
                yield prefix + name, model, name
                yield from config_keys(kind.settings, f"{prefix}{name}.")
