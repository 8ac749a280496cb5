"""What a run will be, before anything is spent: batches, tokens, memory, and which process does what where.

Invariants: nothing is loaded, started or fetched; the numbers are those that training uses; what depends on something
that this machine does not have is called unknown, with the key or the file that would tell it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from callwright.training import memory
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import Config
from callwright.training.executor_settings import executor_settings, tools_of
from callwright.training.in_flight import in_flight, waves
from callwright.training.memory import BYTES, Load
from callwright.training.model_shape import Shape, count_parameters, local_folder, read_shape

GIB = 2**30
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Batches:
    """The numbers that follow from `grpo`, `budgets` and `engine`. ``optimizer_steps`` and the totals are the run's."""

    groups: int
    group_size: int
    micro_batch: int
    updates: int
    steps: int
    in_flight: int
    waves: int
    policy_tokens: int
    context: int

    @property
    def rollouts(self) -> int:
        return self.groups * self.group_size

    @property
    def optimizer_steps(self) -> int:
        return self.steps * self.updates


@dataclass(frozen=True, slots=True)
class Layout:
    """A run on paper. ``sizes``: bytes by what holds them, None where not known."""

    batches: Batches
    model: str
    parameters: int | None
    trained: int | None
    sizes: Mapping[str, int | None]
    processes: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The layout as text."""
        b = self.batches
        yield f"a batch: {b.groups} groups x {b.group_size} = {b.rollouts} rollouts"
        yield f"rollouts at once: {b.in_flight}, so that a batch takes {b.waves} wave(s)"
        passes = b.rollouts // b.micro_batch
        yield f"an update: {passes} micro-batches of {b.micro_batch} rows; {b.updates} update(s) a batch"
        yield f"the run: {b.steps} batches, {b.steps * b.rollouts} rollouts, {b.optimizer_steps} optimizer steps"
        sampled, seen = b.rollouts * b.policy_tokens, b.rollouts * b.context
        yield f"tokens, at most: {sampled:,} sampled and {seen:,} trained through a batch; {b.steps * sampled:,} in all"
        yield f"parameters: {_number(self.parameters)} of {self.model}, {_number(self.trained)} of them trained"
        if None in (self.parameters, *self.sizes.values()):
            yield "what is unknown, the model's config.json on this machine would tell, or in part model.parameters"
        known = [size for size in self.sizes.values() if size is not None]
        yield from (f"memory, {name}: {_gib(size)}" for name, size in self.sizes.items())
        least = "at least " if 0 < len(known) < len(self.sizes) else ""
        yield f"memory, together: {least}{_gib(sum(known) or None)}, in the process that trains"
        yield from (f"process: {line}" for line in self.processes)


def layout_of(config: Config, source: str) -> Layout:
    """The layout of a run of ``config``, which was read from ``source``."""
    batches = batches_of(config)
    path = config.warm_start.checkpoint or config.model.path
    shape, parameters = _model(config, path)
    load = _load(config, batches)
    trained = memory.trained_parameters(parameters, shape, load)
    sizes = {
        "weights": None if parameters is None else memory.weights(parameters, load),
        "gradients": None if trained is None else memory.gradients(trained, load),
        "optimizer": None if trained is None else memory.optimizer(trained, load),
        "activations": None if shape is None else memory.activations(shape, load),
        "logits": None if shape is None else memory.logits(shape, load),
    }
    if config.engine.kind != "vllm":  # a server has a cache of its own
        sizes["key/value cache"] = None if shape is None else memory.cache(shape, load)
    return Layout(batches, path, parameters, trained, sizes, tuple(_processes(config, source)))


def batches_of(config: Config) -> Batches:
    """What a step and the run consist of."""
    grpo, budgets = config.grpo, config.budgets
    rows = grpo.prompts_per_step * grpo.num_generations
    return Batches(
        groups=grpo.prompts_per_step,
        group_size=grpo.num_generations,
        micro_batch=min(grpo.micro_batch or rows, rows),
        updates=int(grpo.trl.get("num_iterations", 1)),
        steps=grpo.steps,
        in_flight=min(rows, in_flight(config)),
        waves=waves(config, rows),
        policy_tokens=min(budgets.policy_tokens, budgets.context),
        context=budgets.context,
    )


def _load(config: Config, batches: Batches) -> Load:
    lora, trl = config.model.lora, config.grpo.trl
    return Load(
        rows=batches.micro_batch,
        tokens=batches.context,
        cached_tokens=config.engine.max_batch * config.engine.max_context,
        width=BYTES[config.engine.dtype],
        rank=None if lora is None else lora.r,
        targets=() if lora is None else lora.target_modules,
        checkpointing=bool(trl.get("gradient_checkpointing", False)),
        reference=float(trl.get("beta", 0.0)) > 0,
    )


def _model(config: Config, path: str) -> tuple[Shape | None, int | None]:
    """The shape and the number of parameters, each as far as it is known here."""
    said = config.model.parameters
    count = None if said is None else round(said * 1e9)
    folder = None if path == "tiny" else local_folder(resolve_checkpoint(path))
    if folder is None:
        return None, count
    shape = read_shape(folder)
    return shape, count_parameters(folder) or (None if shape is None else shape.parameters) or count


def _processes(config: Config, source: str) -> Iterator[str]:
    """Who runs where, in the order in which one starts them."""
    settings, size = executor_settings(config, tools_of(config)), int(os.environ.get("WORLD_SIZE", "1"))
    device = config.engine.device
    where = "cuda where there is one, else cpu" if device == "auto" else device
    trainers = f"{size} trainer{'s' if size > 1 else ''} ({where})"
    if config.engine.kind == "vllm":
        urls, sync = config.engine.vllm.urls, config.engine.vllm.sync
        yield f"vLLM: {', '.join(urls) or 'one server that the trainer starts'}; weights are sent by {sync}"
        yield f"{trainers}: updates"
    else:
        yield f"{trainers}: updates, and the engine inside, {config.engine.max_batch} rows"
    for tool in settings.tools:
        if tool in settings.external:
            yield f"1 or more workers of {tool}, each started as: callwright worker {tool} {source}"
        else:
            yield f"none of its own for {tool}: the trainer runs {config.executors.of(tool).workers} calls at once"
    queues = {
        "memory": "in the trainer",
        "sqlite": f"the file {settings.queues}, for the processes of one machine",
        "servicebus": f"Service Bus, by the connection string in {settings.servicebus_env}",
    }
    yield f"queues: {queues[settings.broker]}, {settings.lanes} lanes a tool"


def _number(count: int | None) -> str:
    if count is None:
        return UNKNOWN
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.2f} million"


def _gib(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / 2**20:.1f} MiB"
