"""``callwright eval CHECKPOINT benchmark=...``: the one rollout function over the rows of benchmarks.

Invariants: every figure is computed from traces; a folder belongs to one setting (rows, config, weights, versions), so
that kept rows never mix with those of another; a deterministic run repeats the whole chunk in which it was interrupted,
because its floating-point sums depend on the rows that decode together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from callwright.envs.batch import Attempt
from callwright.envs.benchmark_markdown import markdown
from callwright.envs.benchmark_report import counted, rerun, success_of, summarise
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.benchmarks.rows import Rows, open_rows
from callwright.envs.tasks.benchmarks.source import RowSource
from callwright.envs.traces import Trace, read_traces
from callwright.serving.engines.engine import Sampling
from callwright.serving.errors import RunError
from callwright.serving.progress import Progress, log
from callwright.training.benchmark_choice import choice_of
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import Config
from callwright.training.evaluation import require_modes, terms
from callwright.training.faults import stop_on_faults
from callwright.training.in_flight import in_flight
from callwright.training.journal import Journal
from callwright.training.run_folder import environment, write_json, write_text
from callwright.training.session import Session, open_session
from callwright.training.trace_records import trace_record

TOOLS: Final = "tools"
CLOSED: Final = "closed_book"
_ABOUT: Final = ("versions", "git", "plugins")


def run_benchmarks(config: Config, runs: Path) -> dict[str, Any]:
    """The report of the first benchmark, with all of them by name under ``benchmarks``; each has its folder under
    ``runs``, and a line in the leaderboard there.

    Raises UserError for what cannot be run, and, when the others have their reports, RunError where too many rollouts
    of a benchmark failed by no fault of the policy.
    """
    chosen = [open_rows(name, choice_of(config)) for name in dict.fromkeys(config.eval.benchmark)]
    reports: dict[str, dict[str, Any]] = {}
    failed: dict[str, RunError] = {}
    for rows in chosen:
        try:
            reports[rows.name] = _run_one(config, rows, runs)
        except RunError as error:
            failed[rows.name] = error
    if failed:
        name, why = next(iter(failed.items()))
        raise RunError(f"{len(failed)} of {len(chosen)} benchmarks have no score, {name} because: {why}") from why
    return {**next(iter(reports.values())), "benchmarks": reports}


def _run_one(config: Config, rows: Rows, runs: Path) -> dict[str, Any]:
    config = config.model_copy(update={"tools": rows.tools})
    settings = _settings(config, rows)
    name = f"{rows.name}-{_digest(settings)[:8]}"
    folder = runs / f"{config.name}-eval" / name
    several = config.eval.samples > 1
    temperature = config.eval.temperature if several else 0.0
    earlier = _earlier(folder)
    # Where the calls are the answer, nothing can be answered without one.
    closes = CLOSED in config.eval.modes and not any(task.functions for task in rows.tasks)
    with open_session(config, tasks=RowSource(rows)) as session:
        session.adopt_configured()
        require_modes(session, [CLOSED] if closes else [])
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "settings.json", settings)
        traces = _run_mode(session, rows, folder, TOOLS, temperature, config.eval.samples)
        closed = _closed_book(_run_mode(session, rows, folder, CLOSED, 0.0, 1)) if closes else None
    report = {
        "benchmark": rows.name,
        "checkpoint": config.model.path,
        "slices": {},
        **summarise(traces, {task.key: task for task in rows.tasks}, rows.metric, rows.means),
        "closed_book": closed,
        "left_out": rows.left_out,
        "rerun": None if earlier is None else rerun(earlier, traces),
        "sampling": {**asdict(Sampling(temperature)), "samples": config.eval.samples, "seed": config.seed},
        **settings["about"],
        "folder": str(folder),
    }
    write_json(folder / "report.json", report)
    write_text(folder / "report.md", markdown(report))
    with (runs / "leaderboard.jsonl").open("a", encoding="utf-8") as board:
        board.write(json.dumps(_line(report)) + "\n")
    print(markdown(report))
    return report


def _closed_book(traces: Sequence[Trace]) -> dict[str, Any]:
    groups = counted(traces)
    success = success_of(groups)
    return {
        "success": success.value,
        "interval": list(success.interval),
        "method": success.method,
        "n_scored": len(groups),
        "n_total": len(traces),
    }


def _run_mode(session: Session, rows: Rows, folder: Path, mode: str, temperature: float, samples: int) -> list[Trace]:
    """Every row's rollouts, the kept ones among them, in the order of the rows."""
    prefill, budgets = terms(session, mode == CLOSED)
    stream = f"{session.config.seed}|{rows.name}|{mode}"
    attempts = [Attempt(task, sample, stream, prefill) for task in rows.tasks for sample in range(samples)]
    codec = session.policy(temperature).codec
    with Journal(folder, mode) as journal, Progress(f"eval {rows.name} {mode}", total=len(attempts)) as bar:
        if journal.kept:
            log(f"{rows.name} {mode}: {len(journal.kept)} of {len(attempts)} rollouts are kept from an earlier start")

        def done(rollout: Rollout) -> None:
            journal.write(trace_record(rollout, codec))
            bar.step()

        for chunk, missing in _chunks(session, attempts, journal):
            bar.step(len(chunk) - len(missing))
            waves = -(-len(missing) // session.config.engine.max_batch)
            ended = session.run(
                missing,
                temperature=temperature,
                budgets=budgets,
                deadline_s=session.config.grpo.deadline_s * waves,
                on_done=done,
            )
            for late in ended:
                if (late.task.key, late.sample) not in journal.kept:
                    journal.write(trace_record(late, codec))
            stop_on_faults(ended, session.config.grpo.max_infra_share, folder)
        return journal.finish((attempt.task.key, attempt.sample) for attempt in attempts)


def _chunks(
    session: Session, attempts: Sequence[Attempt], journal: Journal
) -> Iterator[tuple[Sequence[Attempt], Sequence[Attempt]]]:
    """The attempts that run together, and those of them that are still to be run."""
    size = in_flight(session.config)
    for at in range(0, len(attempts), size):
        chunk = attempts[at : at + size]
        missing = [attempt for attempt in chunk if (attempt.task.key, attempt.sample) not in journal.kept]
        if missing:
            yield chunk, chunk if session.config.deterministic else missing


def _settings(config: Config, rows: Rows) -> dict[str, Any]:
    """All that a result depends on. Two runs of equal settings share a folder, and the second is a rerun."""
    kept = config.model_dump(mode="json", exclude={"name", "tracking", "checkpoint", "warm_start", "serve"})
    kept["eval"] = {key: kept["eval"][key] for key in ("samples", "temperature", "modes", "limit")}
    about = environment(config)
    asked = [(task.key, task.question, task.answer, *task.accepted) for task in rows.tasks]
    return {
        "config": kept,
        "rows": _digest([asked, rows.documents]),
        "weights": [] if config.engine.kind == "remote" else _weights(resolve_checkpoint(config.model.path)),
        "about": {"licence": rows.licence, "source": rows.source, **{key: about[key] for key in _ABOUT}},
    }


def _weights(path: str) -> list[list[Any]]:
    """Name, size and time of a local checkpoint's weights; empty for a hub id."""
    files = sorted(Path(path).glob("*.safetensors")) if Path(path).is_dir() else []
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _earlier(folder: Path) -> list[Trace] | None:
    """The traces of a run that ended, where this one repeats it."""
    return list(read_traces(folder, TOOLS)) if (folder / "traces" / f"{TOOLS}.jsonl").is_file() else None


def _line(report: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("benchmark", "checkpoint", "success", "interval", "n_scored", "n_total", "valid_call_rate")
    closed, again = report["closed_book"], report["rerun"]
    return {
        **{key: report[key] for key in (*keys, "infra_fault_rate", "folder")},
        "metric": next(iter(report["metric"])),
        "closed_book": closed and closed["success"],
        "flip_rate": again and again["flip_rate"],
        **report["sampling"],
    }
