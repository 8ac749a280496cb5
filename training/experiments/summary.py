"""What the cells of an experiment came to, by arm: the numbers of report.json, and nothing that is not in the cells."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from callwright.envs.rewards import REWARDS, RewardSpec, evidence_of
from callwright.envs.traces import Trace, read_traces
from callwright.envs.trajectory import Outcome
from callwright.training.experiments.agreement import kendall, spearman
from callwright.training.experiments.probes import score_probes
from callwright.training.experiments.spec import Cell, Experiment

LOST = ("outcome/late", "outcome/infra_fault")
LAST = 5  # steps that "last" is the mean of
AGREED = 600  # trajectories that rank agreement is computed on, drawn from all cells


def summarise(experiment: Experiment, cells: Sequence[Cell], results: Mapping[str, Any]) -> dict[str, Any]:
    """The whole report as one JSON value."""
    specs = {name: RewardSpec(name=name) for name in REWARDS}
    specs |= {cell.config.reward.label: cell.config.reward for cell in cells}
    functions = {label: spec.function() for label, spec in specs.items()}
    arms: dict[str, list[Any]] = {}
    for cell in cells:
        arms.setdefault(cell.arm, []).append(results[cell.name])
    late = {cell.arm: cell.config.grpo.late for cell in cells}
    return {
        "name": experiment.name,
        "rescored": experiment.rescore,
        "seeds": list(experiment.seeds),
        "arms": {arm: {"late_policy": late[arm], **_arm(runs)} for arm, runs in arms.items()},
        "probes": score_probes(functions),
        "agreement": _agreement(specs, [results[cell.name]["traces"] for cell in cells]),
    }


def _arm(runs: Sequence[Any]) -> dict[str, Any]:
    steps = [run["metrics"] for run in runs]
    rows = [row for one in steps for row in one]
    length = min(map(len, steps))
    curve = [_band([one[at]["success"] for one in steps]) for at in range(length)]
    rollouts = [sum(row["rows"] for row in steps[0][: at + 1]) for at in range(length)]
    queues = [run["reward_queue"] for run in runs if "reward_queue" in run]
    return {
        "curve": [{"rollouts": n, **band} for n, band in zip(rollouts, curve, strict=True)],
        "success_mean": statistics.mean(point["mean"] for point in curve),
        "success_last": statistics.mean(point["mean"] for point in curve[-LAST:]),
        "zero_variance_share": statistics.mean(row["zero_variance_share"] for row in rows),
        "advantage_std": statistics.mean(row["advantage_std"] for row in rows),
        "outcomes": {str(o): int(sum(row[f"outcome/{o}"] for row in rows)) for o in Outcome},
        "lost_share": sum(row[name] for row in rows for name in LOST) / sum(row["rows"] for row in rows),
        "poisoned": int(sum(row["poisoned"] for row in rows)),
        "reward_queue": {name: sum(queue[name] for queue in queues) for name in queues[0]} if queues else None,
        "held_out": [run["summary"]["after"]["sampled"]["success"] for run in runs if "summary" in run],
    }


def _band(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "low": min(values), "high": max(values)}


def _agreement(specs: Mapping[str, RewardSpec], runs: Sequence[str]) -> dict[str, Any]:
    """Kendall's tau-b and Spearman's rho of every two functions on the same trajectories."""
    traces: list[Trace] = [
        trace
        for run in dict.fromkeys(runs)
        for trace in read_traces(Path(run), "step-*")
        if Outcome(trace["outcome"]).in_baseline
    ]
    chosen = random.Random("agreement").sample(traces, min(AGREED, len(traces)))
    evidence = [(evidence_of(trace), bool(trace["success"])) for trace in chosen]
    scores = {label: [sum(spec.function().parts(*one).values()) for one in evidence] for label, spec in specs.items()}
    labels = list(scores)
    pairs = [(a, b) for i, a in enumerate(labels) for b in labels[i + 1 :]]
    return {
        "trajectories": len(chosen),
        "pairs": [
            {"a": a, "b": b, "kendall": kendall(scores[a], scores[b]), "spearman": spearman(scores[a], scores[b])}
            for a, b in pairs
        ],
    }
