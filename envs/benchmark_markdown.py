"""A benchmark's report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def markdown(report: Mapping[str, Any]) -> str:
    """A report for a person: the score first, then what it stands on."""
    lines = [f"## {report['benchmark']}: {report['checkpoint']}", "", "| | value | 95 % |", "|---|---|---|"]
    for name, estimate in report["metric"].items():
        lines.append(_row(name.replace("_", " "), estimate))
    if report["closed_book"]:
        closed = report["closed_book"]
        lines.append(_row("closed book (no call)", {**closed, "value": closed["success"]}))
    for family in ("pass_at_k", "maj_at_k"):
        lines += [f"| {family[:4]}@{k} | {value:.3f} | |" for k, value in report[family].items()]
    tokens = report["tokens_per_rollout"]
    lines += [
        f"| scored / all | {report['n_scored']} / {report['n_total']} | |",
        f"| valid calls | {report['valid_call_rate']:.3f} | |",
        f"| calls a rollout | {report['calls_per_rollout']:.2f} | |",
        f"| tokens a rollout | {'unknown' if tokens is None else f'{tokens:.1f}'} | |",
        f"| seconds a rollout, median and p95 | {report['latency_s']['p50']:.2f}, {report['latency_s']['p95']:.2f} | |",
        f"| infra faults | {report['infra_fault_rate']:.3f} | |",
    ]
    lines += [f"| refused: {code} | {count} | |" for code, count in report["rejections"].items()]
    if report["left_out"]:
        lines.append(f"| rows that the corpus cannot answer, left out | {report['left_out']} | |")
    if report["rerun"]:
        equal = "bit-equal" if report["rerun"]["bit_equal"] else f"{report['rerun']['flip_rate']:.3f} flipped"
        lines.append(f"| beside the earlier run | {equal} | |")
    sampling = ", ".join(f"{key} {value:g}" for key, value in report["sampling"].items())
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items() if version)
    lines += ["", f"Sampling: {sampling}. {versions}.", f"Rows: {report['source']}, {report['licence']}."]
    return "\n".join(lines) + "\n"


def _row(name: str, estimate: Mapping[str, Any]) -> str:
    low, high = estimate["interval"]
    return f"| {name} | {estimate['value']:.3f} | {low:.3f} to {high:.3f} ({estimate['method']}) |"
