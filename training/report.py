"""What a run leaves for its reader: the before/after table, the curve, the next commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from callwright.training.evaluation import Scores


def print_table(before: Scores, after: Scores) -> None:
    """Before and after, greedy and sampled, by slice and by family, on standard output."""
    table = Table(title="held-out tasks: success before and after GRPO")
    table.add_column("rows")
    for name in ("greedy before", "greedy after", "sampled before", "sampled after"):
        table.add_column(name, justify="right")

    def row(label: str, *path: str) -> None:
        values = [_dig(scores[mode], path) for mode in ("greedy", "sampled") for scores in (before, after)]
        table.add_row(label, *("-" if value is None else f"{value:.3f}" for value in values))

    for slice_ in before["greedy"]["slices"]:
        row(slice_.replace("_", " "), "slices", slice_)
    table.add_section()
    for family in before["greedy"]["families"]:
        row(f"  {family}", "families", family)
    table.add_section()
    row("valid calls", "valid_call_rate")
    row("calls a rollout", "calls_per_rollout")
    _print(table)


def print_single(scores: Scores) -> None:
    """One evaluation, on standard output."""
    modes = {mode: scores[mode] for mode in ("greedy", "sampled") if mode in scores}
    if modes:
        table = Table(title="success")
        for name in ("rows", *modes):
            table.add_column(name, justify="left" if name == "rows" else "right")
        first = next(iter(modes.values()))
        for section, indent in (("slices", ""), ("families", "  ")):
            for key in first[section]:
                label = indent + (key.replace("_", " ") if section == "slices" else key)
                table.add_row(label, *(f"{score[section][key]:.3f}" for score in modes.values()))
            table.add_section()
        table.add_row("valid calls", *(f"{score['valid_call_rate']:.3f}" for score in modes.values()))
        table.add_row("calls a rollout", *(f"{score['calls_per_rollout']:.3f}" for score in modes.values()))
        table.add_row("scored / all", *(f"{score['n_scored']} / {score['n_total']}" for score in modes.values()))
        _print(table)
    if "closed_book" in scores:
        print(f"closed book (answers without any call): {scores['closed_book']['success']:.3f}")
    if scores.get("sampled", {}).get("pass_at_k"):
        print("pass@k: " + "  ".join(f"{k} {value:.3f}" for k, value in scores["sampled"]["pass_at_k"].items()))


def _print(table: Table) -> None:
    # Off a terminal rich assumes 80 columns and cuts names; a file or a pipe has room.
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def draw_curve(metrics: Sequence[dict[str, float]], before: Scores, after: Scores | None, path: Path) -> None:
    """Sampled success of training batches by step, with the held-out evaluations at both ends, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4), dpi=120)
    steps = [row["step"] for row in metrics]
    axis.plot(steps, [row["success"] for row in metrics], color="tab:blue", label="training batches (sampled)")
    axis.plot(steps, [row["valid_call_rate"] for row in metrics], color="tab:gray", alpha=0.6, label="valid calls")
    last = steps[-1] if steps else 1
    for mode, colour in (("greedy", "tab:green"), ("sampled", "tab:orange")):
        points = [(0, before[mode]["success"])] + ([(last, after[mode]["success"])] if after else [])
        axis.plot(*zip(*points, strict=True), "o", color=colour, label=f"held-out, {mode}")
    axis.set(xlabel="GRPO step", ylabel="share", ylim=(0, 1.03), title="Learning to call tools")
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def print_next(folder: Path, checkpoint: Path) -> None:
    """The next three commands to try."""
    print(f"curve: {folder / 'figures' / 'success.png'}")
    print("next:")
    print(f"  callwright trace {folder} --sort reward --limit 5     # read rollouts, worst first")
    print(f"  callwright chat {checkpoint}                          # ask it yourself")
    print(f"  callwright eval {checkpoint} eval.n=1024 seed=7       # another world, other tasks")


def _dig(value: Any, path: Sequence[str]) -> float | None:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return None if value is None else float(value)
