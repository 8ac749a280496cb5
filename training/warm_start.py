"""The supervised start: traces of scripted solvers, or of another model, through the one rollout function, then TRL's
SFTTrainer.

Invariant: a trace trains on what its solver sampled; what was given to it (prompt, results) has label -100, except
where ``on_given`` asks for a language-model loss on results too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, get_scheduler
from trl import SFTConfig, SFTTrainer

from callwright.envs.executors.registry import known_tools
from callwright.envs.policy import Policy
from callwright.envs.trajectory import Trajectory
from callwright.serving.engines.codec import Codec
from callwright.serving.models import Loaded, load
from callwright.serving.models.tiny import new_model, train_tokenizer
from callwright.serving.progress import Progress, log
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.demonstrations import demonstrations
from callwright.training.experts import Habits, ScriptedEngine, script
from callwright.training.muon import MuonAdamW
from callwright.training.practice import copying_rows
from callwright.training.session import Session

TOKENIZER_TASKS = 3000
MICRO_BATCHES = 2


def labelled(trajectory: Trajectory, *, on_given: bool) -> dict[str, list[int]]:
    """A row for SFTTrainer: ids, and labels that are -100 where nothing is to be learned."""
    ids, mask = trajectory.ids, trajectory.mask
    start = len(trajectory.prompt_ids)
    labels = [
        token if kept or (on_given and at >= start) else -100
        for at, (token, kept) in enumerate(zip(ids, mask, strict=True))
    ]
    return {"input_ids": ids, "labels": labels}


def fine_tune(
    model: Any,
    tokenizer: Any,
    rows: Sequence[dict[str, list[int]]],
    *,
    steps: int,
    batch: int,
    lr: float,
    muon_lr: float | None,
    seed: int,
    folder: Path,
    use_cpu: bool = False,
    trl: dict[str, Any] | None = None,
) -> list[float]:
    """Train ``model`` in place for ``steps`` batches over shuffled ``rows``; returns the loss of each logged step
    (nats/token)."""
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": batch // MICRO_BATCHES,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "learning_rate": lr,
        "lr_scheduler_type": "linear",
        "warmup_steps": min(20, steps // 10),
        "logging_steps": 20,
        "save_strategy": "no",
        "train_sampling_strategy": "sequential",
        "report_to": [],
        "seed": seed,
        "data_seed": seed,
        "bf16": False,
        "use_cpu": use_cpu,
        "gradient_checkpointing": False,
        "max_length": None,
        "disable_tqdm": True,
        "dataloader_pin_memory": torch.cuda.is_available(),
        **(trl or {}),
    }
    args = SFTConfig(**settings)
    optimizers: tuple[Any, Any] = (None, None)
    if muon_lr is not None:
        optimizer = MuonAdamW(model, muon_lr=muon_lr, lr=lr)
        warmup = int(args.warmup_steps)
        optimizers = (optimizer, get_scheduler(args.lr_scheduler_type, optimizer, warmup, steps))
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(arranged(rows, steps, batch, seed)),
        processing_class=tokenizer,
        optimizers=optimizers,
    )
    # It prints raw log dictionaries to standard output, which belongs to results.
    trainer.remove_callback(PrinterCallback)
    with Progress("warm start", total=steps) as bar:
        trainer.add_callback(_Bar(bar))
        trainer.train()
    model.eval()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def arranged(rows: Sequence[dict[str, list[int]]], steps: int, batch: int, seed: int) -> list[dict[str, list[int]]]:
    """``steps * batch`` rows in the order they are trained on: shuffled each time round, within a batch by length.

    A batch is a random mix; only its micro-batches are of like length, so that little is spent on padding.
    """
    shuffler = random.Random(f"arranged|{seed}")
    order: list[int] = []
    while len(order) < steps * batch:
        order += shuffler.sample(range(len(rows)), len(rows))
    batches = (order[at : at + batch] for at in range(0, steps * batch, batch))
    return [rows[i] for one in batches for i in sorted(one, key=lambda i: len(rows[i]["input_ids"]))]


class _Bar(TrainerCallback):  # type: ignore[misc]
    """Moves a progress bar with the trainer."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._shown: dict[str, float] = {}  # the trainer's last loss, from its first log on

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._bar.step(state.global_step - self._bar.done, **self._shown)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._shown |= {name: value for name, value in (logs or {}).items() if name == "loss"}


def beginning(session: Session) -> Loaded:
    """The model before any stage: loaded, or new where the config says ``tiny``. Raises UserError."""
    config = session.config
    path = config.warm_start.checkpoint or config.model.path
    if path == "tiny":
        return new_tiny(session)
    return load(resolve_checkpoint(path), device=config.engine.device, dtype=config.engine.dtype)


def new_tiny(session: Session) -> Loaded:
    """The tiny model from scratch; its tokenizer is trained on the session's own training texts."""
    tasks = session.tasks.sample("train", TOKENIZER_TASKS, "tokenizer", 0)
    texts = [task.question for task in tasks]
    texts += [turn for task in tasks for turn in script(task, Habits(), random.Random(0), session.config.dialect)]
    texts += [f"{title} {text}" for title, text in islice(session.tasks.documents(), TOKENIZER_TASKS)]
    tokenizer = train_tokenizer(texts, known_tools(), dialect=session.config.dialect)
    model = new_model(len(tokenizer), seed=session.config.seed, pad=tokenizer.pad_token_id, eos=tokenizer.eos_token_id)
    return Loaded(model.eval(), tokenizer, Codec(tokenizer, len(tokenizer)))


def warm_start(session: Session, folder: Path, start: Loaded | None = None) -> Loaded:
    """The model that GRPO starts from: made or loaded, then trained through the configured stages.

    ``tiny`` without a checkpoint begins from nothing: its tokenizer is trained on the session's own task texts. What
    the stages made is kept in ``folder/warm_start``. ``start``: what ``beginning`` gave, where it was asked already.
    Raises RunError, UserError.
    """
    config = session.config
    loaded = beginning(session) if start is None else start
    if not config.warm_start.stages:
        return loaded
    for number, stage in enumerate(config.warm_start.stages):
        nobody = ScriptedEngine(loaded.codec, [])  # each trace brings its own script
        policy = Policy(
            nobody, loaded.codec, session.tools, config.dialect, system_prompt=config.system_prompt == "full"
        )
        traces = demonstrations(session, stage, number, policy)
        rows = [labelled(trace.trajectory, on_given=config.warm_start.on_results) for trace in traces]
        practice = round(len(rows) * stage.copying / (1 - stage.copying))
        rows += copying_rows(loaded.codec, config.tasks.world, practice, f"{config.seed}|{number}")
        losses = fine_tune(
            loaded.model,
            loaded.tokenizer,
            rows,
            steps=stage.steps,
            batch=config.warm_start.batch,
            lr=stage.lr,
            muon_lr=stage.muon_lr,
            seed=config.seed,
            folder=folder / "scratch",
            use_cpu=config.engine.device == "cpu",
            trl=config.warm_start.trl,
        )
        if losses:
            log(f"warm start, stage {number + 1}: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    target = folder / "warm_start"
    loaded.model.save_pretrained(target)
    loaded.tokenizer.save_pretrained(target)
    return loaded
