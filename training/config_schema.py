"""What a config may hold: one frozen model a section, every key with its type, default and one line of meaning.

Imports without torch. Unknown keys are refused. The line under each key is its documentation: docs/configuration.md is
made from it. The same keys run the small model on two cores and a 4B model on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from callwright.envs.budgets import Budgets
from callwright.envs.executors.settings import VARIABLE_NAME, check_address
from callwright.envs.executors.web.settings import WebSettings
from callwright.envs.rewards.registry import RewardSpec
from callwright.envs.tasks.registry import FAMILIES
from callwright.envs.tasks.suite import FamilySpec
from callwright.envs.tasks.world import WorldSpec
from callwright.serving.gateway.settings import GatewaySettings
from callwright.serving.protocol.tools import DEFAULT_TOOLS
from callwright.serving.queues.faults import FaultSettings

Names = Annotated[tuple[str, ...], Field(strict=False)]  # YAML has lists, we keep tuples
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
Free = dict[str, Any]
KNOWN_TOOLS = tuple(tool.name for tool in DEFAULT_TOOLS)
EvalMode = Literal["greedy", "sampled", "closed_book"]
EvalSplit = Literal["held_out", "train"]
LatePolicy = Literal["drop", "wait", "zero"]


class Section(BaseModel):
    """A part of the config: frozen, strict about types, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Lora(Section):
    """LoRA adapters through PEFT."""

    r: Positive = 16
    """Rank."""
    alpha: Positive = 32
    """Scale numerator: the update is weighted by alpha / r."""
    dropout: Share = 0.0
    """Dropout on the adapter's input."""
    target_modules: Names = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Names of the layers that get an adapter; `[all-linear]` takes every linear layer."""


class Model(Section):
    """The policy."""

    path: str = "tiny"
    """`tiny` (made from scratch), `smollm2` (the packaged SmolLM2-135M-Instruct), a local folder, or a hub id."""
    lora: Lora | None = None
    """Adapters instead of full weights; null trains every weight."""


class Remote(Section):
    """The server of a vendor's model, for `engine.kind: remote`; the model's name there is `model.path`."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")] = "http://127.0.0.1:8000"
    """Its address without the API's own path; the default is where `callwright serve` listens."""
    wire: Literal["openai", "responses", "anthropic", "gemini", "ollama"] = "openai"
    """The API that it speaks."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Z_][A-Z0-9_]*$")] | None = None
    """Environment variable that holds the API key; null sends none."""
    timeout_s: Seconds = 120.0
    """Time for one request; a busy or unreachable server is asked three times."""
    fields: Free = {}
    """Put into every request as they are, such as `{reasoning_effort: low}`."""


class Engine(Section):
    """How tokens are sampled."""

    kind: Literal["transformers", "remote"] = "transformers"
    """`transformers` runs the model here; `remote` asks a vendor's, by its text alone, for `eval` and `chat`."""
    max_batch: Positive = 256
    """Rollouts that decode at once, or requests of `remote`; others wait for a slot."""
    max_context: Positive = 512
    """Positions a rollout's cache can hold, prompt included."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes cuda where there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Weights and cache of the engine and the trainer; bfloat16 is slower than float32 on most CPUs."""
    remote: Remote = Remote()


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


class Tasks(Section):
    """What the policy is asked: procedural families over an invented world, or the rows of a benchmark file."""

    world: WorldSpec = WorldSpec()
    families: dict[str, FamilySpec] = {}
    """The mix: a family's name -> its weight and dials."""
    path: str | None = None
    """A benchmark's JSONL file or hub id (GSM8K) in place of the families."""

    @model_validator(mode="after")
    def _known_families(self) -> Self:
        """Refuse an unknown family or dial here, in one line, not when the first task is drawn."""
        for name, spec in self.families.items():
            kind = spec.kind or name
            if kind not in FAMILIES:
                raise ValueError(f"families.{name}: no task family {kind}; there are {', '.join(FAMILIES)}")
            dials = FAMILIES[kind].dials_type
            try:
                dials.model_validate(spec.dials)
            except ValidationError as error:
                first = error.errors()[0]
                dial = ".".join(map(str, first["loc"][:1]))
                known = ", ".join(dials.model_fields) or "none"
                raise ValueError(f"families.{name}.dials.{dial}: {first['msg']} (its dials: {known})") from None
        return self


class WarmStage(Section):
    """One entry of the list `warm_start.stages`: how its scripted solvers behave, and for how long."""

    steps: Positive = 300
    """Optimizer steps."""
    traces: Positive = 6400
    """Distinct traces; they are drawn again when the steps need more."""
    guess: Share = 0.0
    """Share of solvers that answer with a guess at once."""
    slip: Share = 0.0
    """Share of solvers that answer wrongly where no call is needed."""
    stray: Share = 0.0
    """Share of solvers that begin with a needless call of another tool."""
    leave: Share = 0.0
    """Chance, after each call, that a solver breaks off and guesses."""
    copying: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of rows that only repeat a random text: how a model from scratch learns to copy keys of any length."""
    lr: Rate = 3e-3
    """AdamW learning rate at the stage's start; it falls linearly to 0."""
    muon_lr: Rate | None = None
    """Learning rate of Muon on the hidden matrices; null leaves them to AdamW."""


class WarmStart(Section):
    """Supervised start on traces of scripted solvers, or of another model (TRL SFT)."""

    checkpoint: str | None = None
    """Where to begin instead of at `model.path`: `quickstart` (the shipped warm start), a folder, or a run folder."""
    traces: str | None = None
    """A folder of traces (from `callwright eval MODEL eval.split=train`) to learn from instead of scripted solvers."""
    stages: Annotated[tuple[WarmStage, ...], Field(strict=False)] = ()
    """The stages, one after another; none starts GRPO from the model as it is."""
    batch: Positive = 64
    """Traces a step."""
    on_results: bool = False
    """Also learn to predict tool results: more copying to learn from, for a model that starts from nothing."""
    trl: Free = {}
    """Passed unrenamed to trl.SFTConfig."""

    @model_validator(mode="after")
    def _traces_are_learned_in_stages(self) -> Self:
        if self.traces is not None and not self.stages:
            raise ValueError("traces are learned in stages: say warm_start.stages=[{steps: 100}]")
        return self


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
    trl: Free = {}
    """Passed unrenamed to trl.GRPOConfig (loss_type, epsilon_high, num_iterations, learning_rate, ...)."""


class Eval(Section):
    """Evaluation before, during and after training, on tasks that training never draws."""

    benchmark: Names = ()
    """Benchmarks or task families that the verb `eval` runs in place of the tasks; short: `benchmark=gsm8k,math500`."""
    rows: str | None = None
    """A benchmark's rows: a JSONL file, or a folder of samples; null reads the hub. Short: `rows=`."""
    limit: Positive | None = None
    """Rows of each benchmark, the first ones; null takes all. Short: `limit=`."""
    documents: str | None = None
    """A search corpus for benchmarks, JSONL of `{title, text}`: rows that it cannot answer are left out. Short:
    `documents=`."""
    split: EvalSplit = "held_out"
    """`train` makes the verb `eval` draw tasks of training: to collect traces, for a score tells nothing there."""
    n: Positive = 512
    """Tasks with new seeds."""
    n_slices: Count = 256
    """Tasks in each other slice (unseen template, composition, length)."""
    modes: Annotated[tuple[EvalMode, ...], Field(strict=False, min_length=1)] = ("greedy", "sampled", "closed_book")
    """What `eval` runs; `train` always runs all. `closed_book` demands the answer at once, without a call."""
    samples: Positive = 1
    """Sampled rollouts a task; greedy takes one. Of a benchmark with more than one, `samples=`, all are sampled."""
    temperature: Rate = 1.0
    """Temperature of the sampled evaluation."""
    chat_temperature: Annotated[float, Field(ge=0)] = 0.0
    """Temperature of `chat`; 0 is greedy."""


class Checkpoint(Section):
    """Checkpoints in runs/NAME/checkpoints."""

    every: Count = 10
    """GRPO steps between checkpoints; 0 keeps only the last."""
    keep: Positive = 2
    """Checkpoints that stay; older ones are removed."""


class Tracking(Section):
    """Weights & Biases, beside the metrics.jsonl that every run has."""

    wandb: Literal["auto", "off"] = "auto"
    """`auto` syncs where WANDB_API_KEY is set and records offline elsewhere; the variable WANDB_MODE overrules both."""
    project: str = "callwright"
    """Project name."""


class Config(Section):
    """A whole run: these keys and the sections below."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    """The run folder is runs/NAME."""
    seed: Count = 0
    """Root of every random number: tasks, sampling and initialisation are addressed from it."""
    deterministic: bool = False
    """Fix admission and turn order: bit-equal on a rerun and on a resume, a little slower."""
    dialect: Literal["tags", "execute", "hermes"] = "tags"
    """How a model writes calls."""
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
    checkpoint: Checkpoint = Checkpoint()
    tracking: Tracking = Tracking()
    serve: GatewaySettings = GatewaySettings()

    @model_validator(mode="after")
    def _faults_meet_every_record(self) -> Self:
        if self.grpo.faults is not None and self.executors.external:
            raise ValueError("grpo.faults act on the records of this process alone: leave executors.external empty")
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
