"""Evaluation of a session's model: greedy and sampled, over the slices, and with the book closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from callwright.envs.batch import Attempt
from callwright.envs.budgets import Budgets
from callwright.envs.evaluate import pass_rates, score
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.family import SLICES
from callwright.envs.tasks.task import Task
from callwright.envs.traces import TraceWriter
from callwright.serving.errors import UserError
from callwright.serving.progress import Progress
from callwright.serving.protocol import get_dialect
from callwright.training.faults import stop_on_faults
from callwright.training.sections.evaluation import EvalMode, EvalSplit
from callwright.training.session import Session
from callwright.training.trace_records import trace_record

Scores = dict[str, dict[str, Any]]
MODES: tuple[EvalMode, ...] = get_args(EvalMode)


def evaluate_model(
    session: Session, name: str, folder: Path, modes: Sequence[EvalMode] = MODES, split: EvalSplit = "held_out"
) -> Scores:
    """``{"greedy": E, "sampled": E, "closed_book": {"success"}}``, or those of ``modes``; traces go to
    ``folder/traces/NAME-*.jsonl``.

    E is the score on new seeds (of the split ``train``: on its tasks), with ``slices`` added. Raises UserError for a
    mode that the model cannot do.
    """
    config = session.config.eval
    require_modes(session, modes)
    tasks = _tasks(session, split)
    first = next(iter(tasks))
    result: Scores = {}
    for mode in modes:
        if mode == "closed_book":
            closed = score(_run(session, tasks[first], f"{name}-closed", folder, 0.0, 1, closed_book=True))
            result[mode] = {"success": closed.success, "families": closed.families}
            continue
        temperature, samples = (0.0, 1) if mode == "greedy" else (config.temperature, config.samples)
        rollouts = {
            slice_: _run(session, rows, f"{name}-{mode}-{slice_}", folder, temperature, samples)
            for slice_, rows in tasks.items()
        }
        scores = {slice_: score(rows) for slice_, rows in rollouts.items()}
        result[mode] = {
            **scores[first].to_dict(),
            "slices": {slice_: value.success for slice_, value in scores.items()},
            "pass_at_k": pass_rates(rollouts[first]),
            "slice_intervals": {slice_: list(value.interval) for slice_, value in scores.items()},
        }
    return result


def terms(session: Session, closed_book: bool) -> tuple[str, Budgets]:
    """What is put in the policy's mouth, and its budgets."""
    # An opened answer leaves no room for a call; where nothing opens one, the budget leaves none.
    prefill = _opened_answer(session) if closed_book else ""
    return prefill, session.config.budgets.model_copy(update={"calls": 0} if closed_book else {})


def require_modes(session: Session, modes: Sequence[EvalMode]) -> None:
    """Raises UserError for a mode that the served model cannot do."""
    if "closed_book" in modes and _opened_answer(session) and not session.policy(0.0).codec.exact:
        raise UserError(
            f"eval.modes: in {session.config.dialect}, closed_book begins the answer for the model, and a vendor's "
            "writes its own; say eval.modes=[greedy,sampled]"
        )


def _tasks(session: Session, split: EvalSplit) -> dict[str, list[Task]]:
    """The tasks of each slice, those of the score first. Tasks of training come from a stream of their own."""
    config = session.config.eval
    if split == "train":
        return {"train": session.tasks.sample("train", config.n, "eval", 0)}
    tasks = {
        str(slice_): session.tasks.evaluation(slice_, config.n if slice_ == "new_seeds" else config.n_slices)
        for slice_ in SLICES
        if slice_ == "new_seeds" or config.n_slices
    }
    return {slice_: rows for slice_, rows in tasks.items() if rows}


def _opened_answer(session: Session) -> str:
    """What is put in the mouth of a model that must answer at once. Empty where nothing opens an answer."""
    return get_dialect(session.config.dialect).answer_open


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
