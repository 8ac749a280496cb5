"""Build TRL's trainer for a config and run it: arguments, metrics, stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig

from callwright.serving.errors import RunError, UserError
from callwright.training import processes
from callwright.training.checkpoints import prune
from callwright.training.config import Config
from callwright.training.constrained import TurnGrammar
from callwright.training.corrections import Corrections
from callwright.training.interrupt import Interrupt
from callwright.training.run_custom_grpo import GrpoRollouts, reward_column
from callwright.training.session import Session
from callwright.training.trainer import ToolGRPOTrainer

MetricSink = Callable[[int, dict[str, float]], None]
# Defaults of ours that ``grpo.trl`` may change.
_FREE = (
    "gradient_checkpointing",
    "dataloader_pin_memory",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
)
# What cuts or bends the sampler's distribution, and the value that leaves it alone.
_WHOLE = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


def grpo_arguments(config: Config, scratch: Path) -> GRPOConfig:
    """TRL's own config: ours for batch geometry and places, the user's ``grpo.trl`` for everything else, unrenamed.

    One generation batch is ``prompts_per_step * num_generations`` rows. Each process has its share of whole groups, cut
    into micro-batches of ``grpo.micro_batch`` rows; the batch is used for ``num_iterations`` optimizer steps. Raises
    UserError for a key that TRL does not take.
    """
    grpo = config.grpo
    if grpo.prompts_per_step % processes.count():
        raise UserError(f"grpo.prompts_per_step {grpo.prompts_per_step} is not shared by {processes.count()} processes")
    if grpo.faults is not None and processes.count() > 1:
        raise UserError("grpo.faults breaks the queue of one process: start the run without a launcher")
    rows = grpo.prompts_per_step // processes.count() * grpo.num_generations
    micro = min(grpo.micro_batch or rows, rows)
    if rows % micro:
        raise UserError(f"grpo.micro_batch {micro} does not divide the {rows} rows of a process's batch")
    if grpo.trl.get("mask_truncated_completions"):
        raise UserError(
            "grpo.trl.mask_truncated_completions would mask almost every row: it takes a turn that ends in a closing "
            "tag for a truncated one; what ran out of its budget is a policy_fault here, leave the key out"
        )
    _require_whole_distribution(grpo.trl)
    iterations = int(grpo.trl.get("num_iterations", 1))
    settings: dict[str, Any] = {
        "output_dir": str(scratch),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": rows // micro,
        "steps_per_generation": rows // micro,
        "num_generations": grpo.num_generations,
        "max_steps": grpo.steps * iterations,
        "max_completion_length": config.budgets.policy_tokens,
        "temperature": grpo.temperature,
        "logging_steps": iterations,
        "save_strategy": "steps" if config.checkpoint.every else "no",
        "save_steps": max(1, config.checkpoint.every) * iterations,
        "report_to": [],
        "seed": config.seed,
        "use_cpu": not torch.cuda.is_available() or config.engine.device == "cpu",
        "bf16": config.engine.dtype == "bfloat16",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "shuffle_dataset": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        # In the synchronous order the trainer's own weights sample, in its own numerics: there is nothing to correct.
        "vllm_importance_sampling_correction": grpo.asynchronous is not None or config.engine.kind == "vllm",
        "vllm_importance_sampling_mode": "token_truncate",
    }
    taken = sorted(key for key in grpo.trl if key in settings and key not in _FREE)
    if taken:
        raise UserError(
            f"grpo.trl.{taken[0]} follows from the config's own keys (grpo, budgets, engine, checkpoint, seed)"
        )
    try:
        arguments = GRPOConfig(**{**settings, **grpo.trl})
    except (TypeError, ValueError) as error:
        raise UserError(f"grpo.trl: {error}") from error
    _require_known_mode(arguments)
    if config.decoding == "grammar" and arguments.beta:
        raise UserError(
            "grpo.trl.beta: the reference model's logprobs are those of free decoding; train with one or the other"
        )
    return arguments


def _require_whole_distribution(trl: Mapping[str, Any]) -> None:
    """The trainer's logprobs are those of the whole distribution at its temperature; a ratio to those of a part of it
    would be wrong for every token."""
    for key, value in _WHOLE.items():
        if trl.get(key, value) != value:
            raise UserError(
                f"grpo.trl.{key}: a policy is trained on tokens drawn from its whole distribution, because the trainer "
                "computes logprobs of no other; leave the key out"
            )


def _require_known_mode(arguments: GRPOConfig) -> None:
    mode = arguments.vllm_importance_sampling_mode
    modes = [f"{level}_{bound}" for level in ("token", "sequence") for bound in ("truncate", "mask")]
    if mode not in modes:
        raise UserError(f"grpo.trl.vllm_importance_sampling_mode {mode}: one of {', '.join(modes)}")
    if arguments.loss_type == "vespo" and arguments.vllm_importance_sampling_correction and mode[:5] != "token":
        raise UserError(
            f"grpo.trl.vllm_importance_sampling_mode {mode}: the loss vespo takes token_truncate or token_mask"
        )


def build_trainer(
    config: Config,
    folder: Path,
    model: Any,
    tokenizer: Any,
    rollouts: GrpoRollouts,
    sink: MetricSink,
    interrupt: Interrupt,
) -> ToolGRPOTrainer:
    """The trainer, ready to ``train``; every step's metrics go to ``sink(step, metrics)``.

    It stops after the step in which ``interrupt`` was requested, or that passed the wall limit.
    """
    arguments = grpo_arguments(config, folder / "scratch")
    # TRL draws prompts from a dataset; ours only say how many rows a batch has: the rollouts choose their tasks by
    # address.
    prompts = Dataset.from_dict({"prompt": [""] * (config.grpo.prompts_per_step * max(1, config.grpo.steps))})
    trainer = ToolGRPOTrainer(
        model=model,
        args=arguments,
        processing_class=tokenizer,
        reward_funcs=reward_column,
        train_dataset=prompts,
        rollout_func=rollouts,
        peft_config=lora_config(config),
        callbacks=[_Steps(config, rollouts, sink, folder / "checkpoints", interrupt)],
        checkpoints=folder / "checkpoints",
        corrections=Corrections.of(arguments, config.grpo.dppo_threshold),
        turns=_turns(rollouts.record.session) if config.decoding == "grammar" else None,
    )
    # It prints raw log dictionaries to standard output, which belongs to results.
    trainer.remove_callback(PrinterCallback)
    return trainer


def _turns(session: Session) -> TurnGrammar:
    policy = session.policy(session.config.grpo.temperature)
    grammar = policy.grammar()
    assert grammar is not None
    return TurnGrammar(policy.codec, grammar)


def lora_config(config: Config) -> Any:
    """PEFT's config for ``model.lora``, or None to train every weight."""
    lora = config.model.lora
    if lora is None:
        return None
    from peft import LoraConfig

    modules: Any = "all-linear" if lora.target_modules == ("all-linear",) else list(lora.target_modules)
    return LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=modules, task_type="CAUSAL_LM"
    )


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Turns TRL's log calls into one metrics row a batch, and stops between two batches when it has to."""

    def __init__(
        self, config: Config, rollouts: GrpoRollouts, sink: MetricSink, checkpoints: Path, interrupt: Interrupt
    ) -> None:
        self._interrupt = interrupt
        self._config = config
        self._rollouts = rollouts
        self._sink = sink
        self._checkpoints = checkpoints
        self._started = self._step_started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._started = self._step_started = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not logs or "loss" not in logs:
            return
        now = time.monotonic()
        if not math.isfinite(float(logs["loss"])):
            raise RunError(
                f"the loss of step {state.global_step // args.num_iterations} is not a number: nothing of it is kept; "
                "lower the learning rate, then go on from the last checkpoint with --resume"
            )
        numbers = {
            key: float(value)
            for key, value in logs.items()
            if isinstance(value, int | float | str) and _is_number(value)
        }
        trl = {
            key: value for key, value in numbers.items() if math.isfinite(value) and key not in ("reward", "step_time")
        }
        step = state.global_step // args.num_iterations
        self._sink(step, {**trl, **self._rollouts.last, "step_seconds": now - self._step_started})
        self._step_started = now

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if processes.is_first():
            prune(self._checkpoints, self._config.checkpoint.keep)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        minutes = self._config.grpo.minutes
        whole = state.global_step % args.num_iterations == 0
        late = minutes is not None and time.monotonic() - self._started >= minutes * 60
        if whole and processes.any_of(late or self._interrupt.requested):
            control.should_training_stop = True


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
