"""The verbs train and eval."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from callwright.envs.executors.executor import Executor
from callwright.envs.traces import trace_files
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.engine import require_exact
from callwright.serving.errors import UserError
from callwright.serving.models import Loaded, load
from callwright.serving.progress import Progress, log
from callwright.training import processes, report
from callwright.training.asynchronous.rollouts import AsynchronousRollouts
from callwright.training.checkpoints import latest
from callwright.training.config import Config
from callwright.training.engines import engine_class
from callwright.training.evaluation import Scores, evaluate_model
from callwright.training.full_disk import one_line_when_full
from callwright.training.grpo import build_trainer, grpo_arguments
from callwright.training.interrupt import graceful_interrupt
from callwright.training.run_custom_grpo import BatchRecord, GrpoRollouts, RolloutSource
from callwright.training.run_folder import MetricLog, describe_run, new_run_folder, resumed_run_folder, write_json
from callwright.training.served import ServedPolicy
from callwright.training.session import Session, open_session
from callwright.training.synchronous import SynchronousRollouts
from callwright.training.tracking import open_tracker
from callwright.training.warm_start import beginning, warm_start
from callwright.training.watch import Watch

RUNS = Path("runs")


def train(
    config: Config,
    *,
    resume: bool = False,
    executors: Mapping[str, Executor] | None = None,
) -> Path:
    """Warm start, evaluate, GRPO, evaluate; everything is in the returned run folder.

    ``resume`` goes on from the newest complete checkpoint. ``executors`` puts ready ones in the place of a tool's own.
    Raises UserError for bad input and RunError when the run failed. Started as one of several processes, it does its
    share of the rollouts and updates; the first evaluates and writes the record.
    """
    check(config)
    if config.deterministic:
        _be_deterministic()
    folder = RUNS / config.name
    with (
        one_line_when_full(folder, f"callwright train {folder} --resume"),
        open_session(config, executors) as session,
    ):
        # What cannot be had is known before anything is written, or an earlier run is set aside.
        start = None if resume else _ready(session)
        with one_line_when_full(folder, "the same command"), processes.first_before_the_others():
            if processes.is_first():
                folder = resumed_run_folder(config, RUNS) if resume else new_run_folder(config, RUNS)
        return _train(session, folder, resume, start)


def check(config: Config) -> None:
    """What a run would refuse at its start, before anything is spent. Raises UserError."""
    require_exact(engine_class(config))
    if config.decoding == "grammar" and config.engine.kind != "transformers":
        # A server compiles the grammar by a version of its own, so its sets of tokens may be others.
        raise UserError(
            "decoding=grammar trains with engine.kind=transformers alone, which draws from the trainer's sets"
        )
    _require_what_is_shared(config)
    grpo_arguments(config, RUNS / config.name / "scratch")


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate ``config.model.path`` and print the table; traces and what describes the run go to ``runs/NAME-eval``.

    The result is the first of ``eval.modes``, with ``metric`` beside it and the score of each mode under its name.
    """
    folder = RUNS / f"{config.name}-eval"
    with one_line_when_full(folder, "the same command"), open_session(config) as session:
        session.adopt_configured()
        folder.mkdir(parents=True, exist_ok=True)
        describe_run(folder, config)
        scores = evaluate_model(session, "eval", folder, config.eval.modes, config.eval.split)
    report.print_single(scores)
    first = scores[config.eval.modes[0]]
    return {**first, "metric": {"success": first["success"]}, **scores}


def _require_what_is_shared(config: Config) -> None:
    """Raises UserError for what several processes cannot share."""
    if processes.count() == 1:
        return
    if config.warm_start.stages:
        raise UserError("warm_start.stages are trained by one process: run them first, then start from the checkpoint")
    if os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3":
        raise UserError(
            "DeepSpeed's ZeRO-3: its shards can neither be sampled from nor be put together to be sent; use FSDP2 with "
            "engine.kind=vllm, or ZeRO-2"
        )
    if config.engine.kind != "vllm":
        _require_whole_weights()
    elif not config.engine.vllm.urls and processes.count() > processes.here():
        raise UserError("engine.vllm.urls: name servers that all machines of the trainer reach")


def _require_whole_weights() -> None:
    """Each forward pass of sharded weights needs all processes, and an engine in one of them makes as many as its own
    rollouts take: it would wait for ever. Raises UserError."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        raise UserError("engine.kind=transformers: no process can sample from weights that FSDP shards; use vllm")


def _ready(session: Session) -> Loaded:
    """The model before any stage, once training has its tasks and traces. Raises UserError."""
    config = session.config
    if config.grpo.steps:
        session.tasks.sample("train", 1, "grpo", 0)
    if config.warm_start.traces is not None:
        trace_files(Path(config.warm_start.traces))
    return beginning(session)


def _train(session: Session, folder: Path, resume: bool, start: Loaded | None) -> Path:
    config, seconds = session.config, dict.fromkeys(("warm_start", "grpo", "eval"), 0.0)
    checkpoint = latest(folder / "checkpoints") if resume else None
    started = time.monotonic()
    loaded = _resumed_model(session, folder, checkpoint[1]) if checkpoint else warm_start(session, folder, start)
    seconds["warm_start"] = time.monotonic() - started
    with closing(ServedPolicy(session, folder)) as served:
        served.start(loaded)
        before = _evaluated(session, folder, "before", seconds)
        started = time.monotonic()
        rows, updates = _grpo(session, served, folder, loaded, checkpoint)
        seconds["grpo"] = time.monotonic() - started
        after = _evaluated(session, folder, "after", seconds) if config.grpo.steps else before
    if not processes.is_first():
        return folder
    summary = {
        "before": {mode: before[mode] for mode in ("greedy", "sampled")},
        "after": {mode: after[mode] for mode in ("greedy", "sampled")},
        "closed_book": {"before": before["closed_book"]["success"], "after": after["closed_book"]["success"]},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "steps": int(rows[-1]["step"]) if rows else 0,
        "seed": config.seed,
        "outcomes": {str(o): int(sum(row.get(f"outcome/{o}", 0) for row in rows)) for o in Outcome},
        "updates": updates,
    }
    write_json(folder / "summary.json", summary)
    report.draw_curve(rows, before, after, folder / "figures" / "success.png")
    report.print_table(before, after)
    print(f"closed book (answers without any call): {after['closed_book']['success']:.3f}")
    final = latest(folder / "checkpoints")
    report.print_next(folder, final[1] if final else folder / "warm_start")
    return folder


def _grpo(
    session: Session, served: ServedPolicy, folder: Path, loaded: Loaded, checkpoint: tuple[int, Path] | None
) -> tuple[list[dict[str, float]], int]:
    """Train; the metric rows of the whole run, and the number of optimizer steps. The trained model is served then.

    Raises KeyboardInterrupt, with the step saved, when the user asked to stop; RunError when an alarm ended the run.
    """
    config = session.config
    with processes.first_before_the_others():  # each writes the same file aside; none has a step to add yet
        metrics = MetricLog(folder / "metrics.jsonl", keep_to=checkpoint[0] if checkpoint else None)
    if not config.grpo.steps:
        return metrics.rows(), 0
    watch = Watch(config, folder, metrics.rows())
    with (
        graceful_interrupt() as interrupt,
        Progress("grpo", total=config.grpo.steps) as bar,
        open_tracker(config, folder) as tracker,
    ):

        def sink(step: int, row: dict[str, float]) -> None:
            if not processes.is_first():
                return
            row = watch.marked(step, row)
            metrics.write(step, row)
            tracker.log(step, row)
            bar.step(step - bar.done, reward=row["reward"], success=row["success"], valid=row["valid_call_rate"])
            watch.stop(step)

        with closing(_rollout_source(session, served, folder)) as source:
            rollouts = GrpoRollouts(source, BatchRecord(session, folder))
            trainer = build_trainer(config, folder, loaded.model, loaded.tokenizer, rollouts, sink, interrupt)
            served.train(loaded, trainer.model)
            trainer.train(resume_from_checkpoint=str(checkpoint[1]) if checkpoint else None)
        trainer.save_now()
    if processes.is_first():
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    if processes.any_of(interrupt.requested):
        log(f"saved; go on with: callwright train {folder} --resume")
        raise KeyboardInterrupt
    served.renew(trainer.rollout_index, trainer.model.eval())  # evaluated without dropout and gradient checkpointing
    return metrics.rows(), int(trainer.state.global_step)


def _rollout_source(session: Session, served: ServedPolicy, folder: Path) -> RolloutSource:
    settings = session.config.grpo.asynchronous
    if settings is None:
        return SynchronousRollouts(session, served, folder)
    return AsynchronousRollouts(session, served, settings)


def _resumed_model(session: Session, folder: Path, checkpoint: Path) -> Loaded:
    """The checkpoint's weights; with LoRA the model under the adapter, which the trainer loads from the checkpoint."""
    config = session.config
    if config.model.lora is None:
        return load(str(checkpoint), device=config.engine.device, dtype=config.engine.dtype)
    made_here = folder / "warm_start"
    if made_here.is_dir():
        return load(str(made_here), device=config.engine.device, dtype=config.engine.dtype)
    return warm_start(session, folder)


def _evaluated(session: Session, folder: Path, name: str, seconds: dict[str, float]) -> Scores:
    """Evaluate and keep the result in ``NAME.json``; a resumed run finds it there, and so do other processes."""
    path = folder / f"{name}.json"
    with processes.first_before_the_others():
        if path.is_file():
            kept: Scores = json.loads(path.read_text())
            return kept
        started = time.monotonic()
        scores = evaluate_model(session, name, folder)
        seconds["eval"] += time.monotonic() - started
        write_json(path, scores)
        log(f"{name}: greedy {scores['greedy']['success']:.3f}, sampled {scores['sampled']['success']:.3f}")
        return scores


def _be_deterministic() -> None:
    import torch

    torch.use_deterministic_algorithms(True)
