"""What must hold of a run folder, whatever happened to the processes that made it: the one checker of the tests.

It reads the files and computes the advantages itself; nothing of the trainer is asked.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from callwright.envs.traces import Trace, read_traces
from callwright.training.checkpoints import complete
from callwright.training.reward_queue_log import read_reward_queue

IN_BASELINE = {"scored", "policy_fault"}
OUT_OF_IT = {"infra_fault", "late", "cancelled"}
FILES = ("config.yaml", "environment.json", "before.json", "after.json", "metrics.jsonl", "summary.json")


def learned(run: Path) -> dict[str, Any]:
    """Everything that must not depend on what befell the run: ids, rewards and advantages, losses, the last scores."""
    rows = metrics(run)
    traces = [
        (
            trace["key"],
            trace["sample"],
            [segment["ids"] for segment in trace["segments"]],
            trace["reward"],
            trace["advantage"],
        )
        for step in range(len(rows))
        for trace in read_traces(run, f"step-{step:06d}")
    ]
    summary = json.loads((run / "summary.json").read_text())
    return {
        "losses": [(row["step"], row["loss"], row["grad_norm"]) for row in rows],
        "traces": traces,
        "after": (summary["after"]["greedy"]["success"], summary["after"]["sampled"]["success"]),
    }


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def check_run(run: Path, *, steps: int, prompts: int, generations: int) -> list[Trace]:
    """A finished run is whole: returns its training traces."""
    for name in FILES:
        assert (run / name).is_file(), f"{name} is missing"
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, steps + 1)), "a step is missing, or was counted twice"
    seen: set[tuple[str, str]] = set()
    traces = []
    for step, row in enumerate(rows):
        batch = list(read_traces(run, f"step-{step:06d}"))
        _check_batch(batch, row, prompts, generations)
        ids = {(trace["key"], str(trace["sample"])) for trace in batch}
        assert not ids & seen, "a sample was trained twice"
        seen |= ids
        traces += batch
    assert len(seen) == steps * prompts * generations
    summary = json.loads((run / "summary.json").read_text())
    assert Counter(trace["outcome"] for trace in traces) == {k: n for k, n in summary["outcomes"].items() if n}
    newest, folder = complete(run / "checkpoints")[-1]
    state = json.loads((folder / "trainer_state.json").read_text())
    assert (newest, state["global_step"]) == (steps, summary["updates"])
    check_reward_queue(run)
    return traces


def _check_batch(batch: list[Trace], row: dict[str, Any], prompts: int, generations: int) -> None:
    """Each rollout asked for is there once and has one outcome; what is not the policy's moves nothing."""
    assert Counter(trace["key"] for trace in batch) == dict.fromkeys((t["key"] for t in batch), generations)
    assert len(batch) == prompts * generations
    for trace in batch:
        outcome = trace["outcome"]
        assert outcome in IN_BASELINE | OUT_OF_IT
        assert (trace["counted"] is None) == (outcome in OUT_OF_IT), "a fault of ours is in a baseline"
        assert outcome == "scored" or trace["cause"], "a fault without a cause"
    counts = Counter(trace["outcome"] for trace in batch)
    assert {name: row[f"outcome/{name}"] for name in IN_BASELINE | OUT_OF_IT} == {
        name: counts[name] for name in IN_BASELINE | OUT_OF_IT
    }
    assert row["poisoned"] == 0
    for at in range(0, len(batch), generations):
        check_group(batch[at : at + generations])


def check_group(group: list[Trace]) -> None:
    """Advantages are those of the survivors alone: r - mean, and 0 for every other row."""
    counted = [trace["counted"] for trace in group if trace["counted"] is not None]
    mean = sum(counted) / max(len(counted), 1)
    for trace in group:
        expected = 0.0 if trace["counted"] is None else trace["counted"] - mean
        assert trace["advantage"] == pytest.approx(expected, abs=1e-6)


def check_reward_queue(run: Path) -> None:
    """Of the records in the queue's log none answered a call of another, and none that was lost answered any."""
    paired: Counter[str] = Counter()
    for entry in read_reward_queue(run):
        assert not entry["crossed"]
        assert not (entry["fate"]["dropped"] and entry["settled"] == "paired")
        paired[entry["message_id"]] += entry["settled"] == "paired"
    assert not paired or max(paired.values()) == 1
