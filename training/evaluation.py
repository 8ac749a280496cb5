"""Evaluation of a session's model: greedy and sampled, over the slices, and with the book closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from callwright.envs.batch import Attempt
from callwright.envs.budgets import Budgets
from callwright.envs.evaluate import pass_rates, score
from callwright.envs.rollout import Rollout
from callwright.envs.tasks.family import SLICES
from callwright.envs.tasks.task import Task
from callwright.envs.traces import TraceWriter
from callwright.serving.progress import Progress
from callwright.serving.protocol import get_dialect
from callwright.training.config_schema import EvalMode
from callwright.training.faults import stop_on_faults
from callwright.training.session import Session
from callwright.training.trace_records import trace_record

Scores = dict[str, dict[str, Any]]
MODES: tuple[EvalMode, ...] = get_args(EvalMode)


def evaluate_model(session: Session, name: str, folder: Path, modes: Sequence[EvalMode] = MODES) -> Scores:
    """``{"greedy": E, "sampled": E, "closed_book": {"success"}}``, or those of ``modes``; traces go to
    ``folder/traces/NAME-*.jsonl``.

    E is the score on new seeds, with ``slices`` added.
    """
    config = session.config.eval
    tasks = {
        slice_: session.tasks.evaluation(slice_, config.n if slice_ == "new_seeds" else config.n_slices)
        for slice_ in SLICES
        if slice_ == "new_seeds" or config.n_slices
    }
    tasks = {slice_: rows for slice_, rows in tasks.items() if rows}
    result: Scores = {}
    for mode in modes:
        if mode == "closed_book":
            closed = score(_run(session, tasks["new_seeds"], f"{name}-closed", folder, 0.0, 1, closed_book=True))
            result[mode] = {"success": closed.success, "families": closed.families}
            continue
        temperature, samples = (0.0, 1) if mode == "greedy" else (config.temperature, config.samples)
        rollouts = {
            slice_: _run(session, rows, f"{name}-{mode}-{slice_}", folder, temperature, samples)
            for slice_, rows in tasks.items()
        }
        scores = {slice_: score(rows) for slice_, rows in rollouts.items()}
        result[mode] = {
            **scores["new_seeds"].to_dict(),
            "slices": {slice_: value.success for slice_, value in scores.items()},
            "pass_at_k": pass_rates(rollouts["new_seeds"]),
            "slice_intervals": {slice_: list(value.interval) for slice_, value in scores.items()},
        }
    return result


def terms(session: Session, closed_book: bool) -> tuple[str, Budgets]:
    """What is put in the policy's mouth, and its budgets."""
    # An opened answer leaves no room for a call; where nothing opens one, the budget leaves none.
    prefill = get_dialect(session.config.dialect).answer_open if closed_book else ""
    return prefill, session.config.budgets.model_copy(update={"calls": 0} if closed_book else {})


def _run(
    session: Session,
    tasks: Sequence[Task],
    name: str,
    folder: Path,
    temperature: float,
    samples: int,
    closed_book: bool = False,
) -> list[Rollout]:
    prefill, budgets = terms(session, closed_book)
    attempts = [
        Attempt(task, sample, f"{session.config.seed}|eval", prefill) for task in tasks for sample in range(samples)
    ]
    with Progress(f"eval {name}", total=len(attempts)) as bar, TraceWriter(folder / "traces", name) as traces:
        # The batch has a deadline like any other, in proportion to its size.
        waves = -(-len(attempts) // session.config.engine.max_batch)
        rows = session.run(
            attempts,
            temperature=temperature,
            budgets=budgets,
            deadline_s=session.config.grpo.deadline_s * waves,
            on_done=lambda _: bar.step(),
        )
        for row in rows:
            traces.write(trace_record(row, session.policy(temperature).codec))
    stop_on_faults(rows, session.config.grpo.max_infra_share, folder)
    return rows
