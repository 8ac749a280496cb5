"""The one report of an experiment: report.md, report.json and the plots, all made from one summary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callwright.serving.progress import log
from callwright.training.run_folder import write_json, write_text


def write_report(summary: dict[str, Any], folder: Path) -> Path:
    """Write it; returns report.md. Without matplotlib the plots are left out, and a line says so."""
    write_json(folder / "report.json", summary)
    try:
        _draw(summary, folder)
    except ModuleNotFoundError as error:
        log(f"no plots: this needs {error.name}: pip install 'callwright[train]'")
    path = folder / "report.md"
    write_text(path, "\n".join(_lines(summary)) + "\n")
    return path


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    made = f"traces of {summary['rescored']}, scored again" if summary["rescored"] else "trained live"
    yield from (f"# {summary['name']}", "", f"{made}; seeds {', '.join(map(str, summary['seeds']))}.", "")
    yield "![success by rollouts](learning.png)"
    yield from ("", "## Arms", "")
    names = (
        "arm",
        "success, mean",
        "last steps",
        "held out",
        "zero-variance groups",
        "advantage spread",
        "lost or late",
    )
    yield f"| {' | '.join(names)} | poisoned |"
    yield "|---" * (len(names) + 1) + "|"
    for arm, values in sorted(summary["arms"].items(), key=lambda item: -item[1]["success_mean"]):
        held = values["held_out"]
        shown = f"{sum(held) / len(held):.3f}" if held else "-"
        yield (
            f"| {arm} | {values['success_mean']:.3f} | {values['success_last']:.3f} | {shown} "
            f"| {values['zero_variance_share']:.3f} | {values['advantage_std']:.3f} | {values['lost_share']:.3f} "
            f"| {values['poisoned']} |"
        )
    yield from ("", "The mean over all steps is what an arm learnt per rollout. " + _poisoned(summary))
    yield from ("", "![shares](shares.png)", "", "## The reward queue", "")
    yield from _queue(summary)
    yield from ("", "## Hacking probes", "")
    yield "A function pays a hack that earns more than every honest failure, or as much as the honest success."
    yield from ("", "| reward | hacks it pays |", "|---|---|")
    for label, found in summary["probes"].items():
        yield f"| {label} | {'; '.join(found['pays']) or 'none'} |"
    yield from ("", f"## Rank agreement, on {summary['agreement']['trajectories']} trajectories", "")
    yield from ("| a | b | Kendall | Spearman |", "|---|---|---|---|")
    for pair in summary["agreement"]["pairs"]:
        yield f"| {pair['a']} | {pair['b']} | {_number(pair['kendall'])} | {_number(pair['spearman'])} |"


def _poisoned(summary: dict[str, Any]) -> str:
    """Poison is there to be shown under the policy ``zero``; anywhere else it is a defect."""
    wrong = [arm for arm, v in summary["arms"].items() if v["poisoned"] and v["late_policy"] != "zero"]
    if wrong:
        return f"**Poisoned samples where there must be none: {', '.join(wrong)}.**"
    return "Poisoned samples: none outside the late policy zero."


def _queue(summary: dict[str, Any]) -> Iterator[str]:
    rows = {arm: values["reward_queue"] for arm, values in summary["arms"].items() if values["reward_queue"]}
    if not rows:
        yield "No log: the cells were not live, or had no grpo.faults."
        return
    names = list(next(iter(rows.values())))
    yield f"| arm | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for arm, counts in rows.items():
        yield f"| {arm} | {' | '.join(str(counts[name]) for name in names)} |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _draw(summary: dict[str, Any], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.5), dpi=120)
    for arm, values in summary["arms"].items():
        x = [point["rollouts"] for point in values["curve"]]
        (line,) = axis.plot(x, [point["mean"] for point in values["curve"]], label=arm)
        low, high = ([point[edge] for point in values["curve"]] for edge in ("low", "high"))
        axis.fill_between(x, low, high, color=line.get_color(), alpha=0.15)
    axis.set(xlabel="rollouts", ylabel="success", ylim=(0, 1.03), title="mean and range over seeds")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "learning.png")
    plt.close(figure)

    figure, axis = plt.subplots(figsize=(8, 4.5), dpi=120)
    arms = list(summary["arms"])
    for offset, name in enumerate(("zero_variance_share", "advantage_std", "lost_share")):
        heights = [summary["arms"][arm][name] for arm in arms]
        axis.barh([at + 0.27 * offset for at in range(len(arms))], heights, 0.25, label=name.replace("_", " "))
    axis.set_yticks([at + 0.27 for at in range(len(arms))], arms, fontsize=7)
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "shares.png")
    plt.close(figure)
