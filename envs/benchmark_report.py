"""What the rollouts of a benchmark came to, computed from their traces alone, so that kept rows count like new ones.

Invariants: an infra fault is never a wrong answer, and ``n_scored`` of ``n_total`` says how many rollouts count; with
several samples a task the interval is over tasks, because samples of one task are not independent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles
from typing import Any

from callwright.envs.evaluate import pass_at_k
from callwright.envs.rewards.correct import normalise
from callwright.envs.rewards.qa import MEANS
from callwright.envs.statistics import Estimate, mean, most_voted, proportion
from callwright.envs.tasks.task import Task
from callwright.envs.traces import Trace
from callwright.envs.trajectory import Outcome

Groups = Mapping[str, Sequence[Trace]]


def counted(traces: Sequence[Trace]) -> Groups:
    """The traces that count, by the key of their task."""
    groups: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        # Traces of others may hold rollouts that nobody graded.
        if trace["outcome"] is not None and Outcome(trace["outcome"]).in_baseline:
            groups[trace["key"]].append(trace)
    return groups


def success_of(groups: Groups) -> Estimate:
    """The share of right answers: Wilson's interval for single samples, the bootstrap over tasks for several."""
    shares = [fmean(bool(trace["success"]) for trace in group) for group in groups.values()]
    if all(len(group) == 1 for group in groups.values()):
        return proportion(round(sum(shares)), len(shares))
    return mean(shares)


def summarise(traces: Sequence[Trace], tasks: Mapping[str, Task], metric: str, means: Sequence[str]) -> dict[str, Any]:
    """The figures of a set of traces. ``metric`` names what ``success`` is; ``means`` are metrics of the answers."""
    groups = counted(traces)
    rows = [trace for group in groups.values() for trace in group]
    success = success_of(groups)
    further = {name: _mean_of(name, groups, tasks).to_dict() for name in means}
    calls = sum(len(trace["calls"]) for trace in rows)
    refused = Counter(rejection["code"] for trace in rows for rejection in trace["rejections"])
    attempted = calls + refused.total() + sum(trace["violations"] for trace in rows)
    outcomes = Counter(trace["outcome"] for trace in traces)
    return {
        "success": success.value,
        "interval": list(success.interval),
        "metric": {metric: success.to_dict(), **further},
        "families": _families(groups),
        "n_scored": len(rows),
        "n_total": len(traces),
        "pass_at_k": _pass_rates(groups),
        "maj_at_k": _majority(groups) if all(map(_answers_agree, tasks.values())) else {},
        "valid_call_rate": calls / attempted if attempted else 1.0,
        "rejections": dict(sorted(refused.items())),
        "calls_per_rollout": calls / len(rows) if rows else 0.0,
        "tokens_per_rollout": _tokens(rows),
        "latency_s": _latency([trace["seconds"] for trace in rows]),
        "outcomes": {str(outcome): outcomes[outcome] for outcome in Outcome},
        "infra_fault_rate": outcomes[Outcome.INFRA_FAULT] / len(traces) if traces else 0.0,
    }


def _answers_agree(task: Task) -> bool:
    """Whether equal answers are equally right: not of programs, which are right in many wordings, nor where calls and
    deeds are judged."""
    return task.tests is None and task.functions is None and task.storage is None


def _families(groups: Groups) -> dict[str, float]:
    """Success by the family of the tasks."""
    found: dict[str, list[float]] = defaultdict(list)
    for group in groups.values():
        found[group[0]["family"]].append(fmean(bool(trace["success"]) for trace in group))
    return {name: fmean(shares) for name, shares in sorted(found.items())}


def _mean_of(name: str, groups: Groups, tasks: Mapping[str, Task]) -> Estimate:
    def of(trace: Trace) -> float:
        task = tasks[trace["key"]]
        return MEANS[name](trace["solution"] or "", (task.answer, *task.accepted))

    return mean([fmean(map(of, group)) for group in groups.values()])


def _pass_rates(groups: Groups) -> dict[str, float]:
    """pass@k for k = 1, 2, 4, ... up to the samples that every task has; empty for single samples."""
    counts = [(sum(bool(trace["success"]) for trace in group), len(group)) for group in groups.values()]
    fewest = min((n for _, n in counts), default=0)
    sizes = [1 << power for power in range(fewest.bit_length())] if fewest > 1 else []
    return {str(k): fmean(pass_at_k(right, n, k) for right, n in counts) for k in sizes}


def _majority(groups: Groups) -> dict[str, float]:
    """maj@k: whether the answer given most often (the first of equals) is right; k is the samples of every task."""
    fewest = min(map(len, groups.values()), default=0)
    if fewest < 2:
        return {}
    rights = []
    for group in groups.values():
        votes = sorted(group, key=lambda trace: int(trace["sample"]))[:fewest]
        given = [trace for trace in votes if (trace["solution"] or "").strip()]
        winner = most_voted([normalise(trace["solution"]) for trace in given]) if given else -1
        rights.append(bool(given) and bool(given[winner]["success"]))
    return {str(fewest): fmean(rights)}


def _tokens(rows: Sequence[Trace]) -> float | None:
    """Sampled tokens a rollout; None where a model was known by its text alone, whose segments have no ids."""
    sampled = [[part for part in trace["segments"] if part["kind"] == "sampled"] for trace in rows]
    if not all("ids" in part for parts in sampled for part in parts):
        return None
    return fmean(sum(len(part["ids"]) for part in parts) for parts in sampled) if rows else 0.0


def _latency(seconds: Sequence[float]) -> dict[str, float]:
    """Of whole rollouts, tools included."""
    if len(seconds) < 2:
        return {"mean": sum(seconds), "p50": sum(seconds), "p95": sum(seconds)}
    cuts = quantiles(seconds, n=20, method="inclusive")
    return {"mean": fmean(seconds), "p50": cuts[9], "p95": cuts[18]}


def rerun(earlier: Sequence[Trace], later: Sequence[Trace]) -> dict[str, Any]:
    """How much a repeated run differs: the share of rollouts that flipped between right and wrong, and whether all
    sampled tokens and logprobs are known and the same bits."""
    pairs = list(zip(earlier, later, strict=True))
    flips = sum(bool(one["success"]) != bool(other["success"]) for one, other in pairs)
    return {
        "flip_rate": flips / len(pairs) if pairs else 0.0,
        "bit_equal": _tokens(later) is not None and all(one["segments"] == other["segments"] for one, other in pairs),
    }
