"""What does quickstart learn? Three seeds of GRPO from the shipped warm start, beside two controls.

The controls start from the same warm start: ``permuted`` is the same GRPO with rewards shuffled over each batch, and
``more_sft`` trains on more of the warm start's own traces for about the same time. Each run is a process of its own;
at the end the warm start is sampled 64 times a task, which says what was already within reach (pass@64).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import Measured, Row, progress, run

HEADLINE = (
    "greedy_after_mean",
    "sampled_after_mean",
    "greedy_gain_mean",
    "sampled_gain_mean",
    "spread_greedy",
    "spread_sampled",
    "valid_call_rate_min",
    "unseen_template_min",
    "unseen_composition_mean",
    "unseen_length_mean",
    "permuted_gain",
    "more_sft_gain",
    "warm_start_pass_at_64",
    "seconds_max",
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("learning", measure, HEADLINE, argv, _options)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="config values for every run")
    parser.add_argument("--runs", type=Path, help="keep the run folders here")
    parser.add_argument("--at-once", type=int, default=1, help="runs at once; the cores are shared out, times grow")


def measure(options: argparse.Namespace) -> Measured:
    """All runs, ``at_once`` of them at a time."""
    commands = [
        *(("train", "quickstart", f"name=seed-{seed}", f"seed={seed}", *options.set) for seed in options.seeds),
        ("train", "quickstart", "name=permuted", "grpo.permute_rewards=true", *options.set),
        ("train", "control-sft", "name=more-sft", *options.set),
        ("eval", "quickstart", "eval.n=105", "eval.n_slices=0", "eval.samples=64"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.runs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        threads = max(1, (os.cpu_count() or 1) // options.at_once)
        with ThreadPoolExecutor(options.at_once) as pool:
            *seeds, permuted, more_sft, warm = pool.map(lambda words: _callwright(folder, threads, words), commands)
    rows = [_row(f"seed {one['seed']}", one["before"], one["after"], one) for one in seeds]
    rows.append(_row("rewards permuted", permuted["before"], permuted["after"], permuted))
    # The supervised control has no GRPO: its "before" is the shipped warm start, as the seeds measured it.
    rows.append(_row("more supervised", seeds[0]["before"], more_sft["after"], more_sft))
    return Measured(rows, _headline(seeds, permuted, more_sft, warm))


def _headline(
    seeds: Sequence[dict[str, Any]], permuted: dict[str, Any], more_sft: dict[str, Any], warm: dict[str, Any]
) -> dict[str, float]:
    def after(mode: str) -> list[float]:
        return [one["after"][mode]["success"] for one in seeds]

    def gains(mode: str) -> list[float]:
        return [one["after"][mode]["success"] - one["before"][mode]["success"] for one in seeds]

    def slices(name: str) -> list[float]:
        return [one["after"]["greedy"]["slices"][name] for one in seeds]

    return {
        "greedy_after_mean": statistics.mean(after("greedy")),
        "sampled_after_mean": statistics.mean(after("sampled")),
        "greedy_gain_mean": statistics.mean(gains("greedy")),
        "sampled_gain_mean": statistics.mean(gains("sampled")),
        "spread_greedy": max(after("greedy")) - min(after("greedy")),
        "spread_sampled": max(after("sampled")) - min(after("sampled")),
        "valid_call_rate_min": min(one["after"]["sampled"]["valid_call_rate"] for one in seeds),
        "unseen_template_min": min(slices("unseen_template")),
        "unseen_composition_mean": statistics.mean(slices("unseen_composition")),
        "unseen_length_mean": statistics.mean(slices("unseen_length")),
        "permuted_gain": permuted["after"]["sampled"]["success"] - permuted["before"]["sampled"]["success"],
        "more_sft_gain": more_sft["after"]["sampled"]["success"] - seeds[0]["before"]["sampled"]["success"],
        "warm_start_pass_at_64": warm["sampled"]["pass_at_k"]["64"],
        "seconds_max": max(sum(one["seconds"].values()) for one in seeds),
    }


def _row(name: str, before: dict[str, Any], after: dict[str, Any], summary: dict[str, Any]) -> Row:
    row: dict[str, Any] = {"run": name, "seconds": float(sum(summary["seconds"].values()))}
    for mode in ("greedy", "sampled"):
        row[f"{mode} before"] = before[mode]["success"]
        row[f"{mode} after"] = after[mode]["success"]
    row["valid calls"] = after["sampled"]["valid_call_rate"]
    row.update(
        {name.replace("unseen_", ""): value for name, value in after["greedy"]["slices"].items() if "un" in name}
    )
    row["families falling"] = ", ".join(_falling(before, after)) or "none"
    return row


def _falling(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Families whose success fell, greedy or sampled."""
    return [
        f"{family} ({mode})"
        for mode in ("greedy", "sampled")
        for family, value in before[mode]["families"].items()
        if after[mode]["families"][family] < value
    ]


def _callwright(folder: Path, threads: int, words: Sequence[str]) -> dict[str, Any]:
    """One command, in a process of its own; its report as JSON."""
    progress(f"callwright {' '.join(words)}")
    report = folder / f"{words[0]}-{words[2].partition('=')[2]}.json"
    command = [sys.executable, "-m", "callwright", *words, "--json", str(report.resolve())]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with report.with_suffix(".log").open("w") as log:
        subprocess.run(command, cwd=folder, check=True, stdout=log, stderr=log, env=environment)
    result: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return result


if __name__ == "__main__":
    sys.exit(main())
