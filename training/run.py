"""The verbs train and eval."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from callwright.envs.executors.executor import Executor
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.engine import require_exact
from callwright.serving.models import Loaded, load
from callwright.serving.progress import Progress, log
from callwright.training import report
from callwright.training.asynchronous.rollouts import AsynchronousRollouts
from callwright.training.checkpoints import latest
from callwright.training.config import Config, dump_config
from callwright.training.evaluation import Scores, evaluate_model
from callwright.training.grpo import build_trainer, grpo_arguments
from callwright.training.interrupt import graceful_interrupt
from callwright.training.run_custom_grpo import BatchRecord, GrpoRollouts, RolloutSource
from callwright.training.run_folder import MetricLog, new_run_folder, resumed_run_folder, write_json
from callwright.training.session import Session, engine_class, open_session
from callwright.training.synchronous import SynchronousRollouts
from callwright.training.tracking import open_tracker
from callwright.training.warm_start import warm_start

RUNS = Path("runs")


def train(
    config: Config,
    *,
    resume: bool = False,
    dry_run: bool = False,
    executors: Mapping[str, Executor] | None = None,
) -> Path:
    """Warm start, evaluate, GRPO, evaluate; everything is in the returned run folder.

    ``resume`` goes on from the newest complete checkpoint. ``dry_run`` prints the resolved config and stops.
    ``executors`` puts ready ones in the place of a tool's own. Raises UserError for bad input and RunError when the run
    failed.
    """
    require_exact(engine_class(config))
    if dry_run:
        return _dry_run(config)
    grpo_arguments(config, RUNS / config.name / "scratch")  # what TRL refuses is known before anything is spent
    folder = resumed_run_folder(config, RUNS) if resume else new_run_folder(config, RUNS)
    if config.deterministic:
        _be_deterministic()
    with open_session(config, executors) as session:
        return _train(session, folder, resume)


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate ``config.model.path`` and print the table; traces go to ``runs/NAME-eval``.

    The result is the first of ``eval.modes``, with ``metric`` beside it and the score of each mode under its name.
    """
    with open_session(config) as session:
        session.adopt_configured()
        scores = evaluate_model(session, "eval", RUNS / f"{config.name}-eval", config.eval.modes, config.eval.split)
    report.print_single(scores)
    first = scores[config.eval.modes[0]]
    return {**first, "metric": {"success": first["success"]}, **scores}


def _train(session: Session, folder: Path, resume: bool) -> Path:
    config, seconds = session.config, dict.fromkeys(("warm_start", "grpo", "eval"), 0.0)
    checkpoint = latest(folder / "checkpoints") if resume else None
    started = time.monotonic()
    loaded = _resumed_model(session, folder, checkpoint[1]) if checkpoint else warm_start(session, folder)
    seconds["warm_start"] = time.monotonic() - started
    session.adopt(loaded)
    before = _evaluated(session, folder, "before", seconds)
    started = time.monotonic()
    rows, updates = _grpo(session, folder, loaded, checkpoint)
    seconds["grpo"] = time.monotonic() - started
    after = _evaluated(session, folder, "after", seconds) if config.grpo.steps else before
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
    session: Session, folder: Path, loaded: Loaded, checkpoint: tuple[int, Path] | None
) -> tuple[list[dict[str, float]], int]:
    """Train; the metric rows of the whole run, and the number of optimizer steps. The trained model is served then.

    Raises KeyboardInterrupt, with the step saved, when the user asked to stop.
    """
    config = session.config
    metrics = MetricLog(folder / "metrics.jsonl", keep_to=checkpoint[0] if checkpoint else None)
    if not config.grpo.steps:
        return metrics.rows(), 0
    tracker = open_tracker(config, folder)
    with graceful_interrupt() as interrupt, Progress("grpo", total=config.grpo.steps) as bar:

        def sink(step: int, row: dict[str, float]) -> None:
            metrics.write(step, row)
            tracker.log(step, row)
            bar.step(step - bar.done, reward=row["reward"], success=row["success"], valid=row["valid_call_rate"])

        with closing(_rollout_source(session, folder)) as source:
            rollouts = GrpoRollouts(source, BatchRecord(session, folder))
            trainer = build_trainer(config, folder, loaded.model, loaded.tokenizer, rollouts, sink, interrupt)
            source.serve(loaded, trainer.model)
            trainer.train(resume_from_checkpoint=str(checkpoint[1]) if checkpoint else None)
        trainer.save_now()
    session.adopt(loaded, trainer.model.eval())  # from here on it is served: no dropout, no gradient checkpointing
    tracker.close()
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    if interrupt.requested:
        log(f"saved; go on with: callwright train {folder} --resume")
        raise KeyboardInterrupt
    session.exact_engine.set_version(trainer.rollout_index)
    return metrics.rows(), int(trainer.state.global_step)


def _rollout_source(session: Session, folder: Path) -> RolloutSource:
    settings = session.config.grpo.asynchronous
    return SynchronousRollouts(session, folder) if settings is None else AsynchronousRollouts(session, settings)


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
    """Evaluate and keep the result in ``NAME.json``; a resumed run finds it there."""
    path = folder / f"{name}.json"
    if path.is_file():
        kept: Scores = json.loads(path.read_text())
        return kept
    started = time.monotonic()
    scores = evaluate_model(session, name, folder)
    seconds["eval"] += time.monotonic() - started
    write_json(path, scores)
    log(f"{name}: greedy {scores['greedy']['success']:.3f}, sampled {scores['sampled']['success']:.3f}")
    return scores


def _dry_run(config: Config) -> Path:
    arguments = grpo_arguments(config, RUNS / config.name / "scratch")
    print(dump_config(config), end="")
    rows = config.grpo.prompts_per_step * config.grpo.num_generations
    log(
        f"a step: {config.grpo.prompts_per_step} tasks x {config.grpo.num_generations} = {rows} rollouts, in "
        f"micro-batches of {arguments.per_device_train_batch_size}, {arguments.num_iterations} update(s); "
        f"{config.grpo.steps} steps"
    )
    return RUNS / config.name


def _be_deterministic() -> None:
    import torch

    torch.use_deterministic_algorithms(True)
