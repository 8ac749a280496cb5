"""``callwright trace``: read a run's rollouts, what the policy sampled beside what it was given; or an event store."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from callwright.envs.traces import Trace, read_traces
from callwright.envs.trajectory import Outcome
from callwright.scripts.common import JsonFile, find_run, write_json
from callwright.scripts.conversations import show
from callwright.scripts.terminal import plain
from callwright.serving.errors import UserError

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN_FOLDER|STORE", help="runs/NAME, or NAME; or the file of an event store.")
]
OutcomeOption = Annotated[Outcome | None, typer.Option("--outcome", help="Only rollouts that ended so.")]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Only this task family.")]
TaskOption = Annotated[str | None, typer.Option("--task", metavar="KEY", help="Only the task whose key has KEY in it.")]
StepOption = Annotated[int | None, typer.Option("--step", help="Only this training step.")]
SortOption = Annotated[str | None, typer.Option("--sort", metavar="reward|-reward", help="Lowest or highest first.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="How many to print.")]
ConversationOption = Annotated[
    str | None, typer.Option("--conversation", metavar="NAME", help="Of a store: replay this conversation.")
]
ExportOption = Annotated[
    Path | None,
    typer.Option("--export", metavar="FILE", help="Of a store: write events as JSON lines; - is stdout."),
]

_STYLE = {"sampled": "bold green", "given": "cyan"}
UNGRADED = "ungraded"  # a conversation that was served
_OUTCOME_STYLE = {"scored": "green", "policy_fault": "yellow", UNGRADED: "cyan"}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rollouts to show; None takes all."""

    outcome: Outcome | None
    family: str | None
    task: str | None
    step: int | None

    def __call__(self, trace: Trace) -> bool:
        return (
            self.outcome in (None, trace["outcome"])
            and self.family in (None, trace["family"])
            and self.step in (None, trace.get("step"))
            and (self.task is None or self.task in trace["key"])
        )


def trace(
    run_folder: RunFolder,
    outcome: OutcomeOption = None,
    family: FamilyOption = None,
    task: TaskOption = None,
    step: StepOption = None,
    sort: SortOption = None,
    limit: LimitOption = 10,
    conversation: ConversationOption = None,
    export: ExportOption = None,
    json_file: JsonFile = None,
) -> None:
    """Print rollouts readably: `sampled` lines are the policy's, `given` lines are the prompt and tool results.

    Of an event store (such as the events.sqlite that `serve` records): list, replay or export its conversations.
    """
    if run_folder.is_file():
        if any(flag is not None for flag in (outcome, family, task, step, sort)):
            raise UserError("a store holds conversations, not rollouts: it takes --conversation, --export and --limit")
        show(run_folder, conversation, export, limit, json_file)
        return
    if conversation is not None or export is not None:
        raise UserError(f"{run_folder} is no event store: name the file, such as runs/NAME/events.sqlite")
    if sort not in (None, "reward", "-reward"):
        raise UserError(f"--sort {sort}: say reward (lowest first) or -reward (highest first)")
    folder = find_run(run_folder)
    counts: Counter[str] = Counter()
    matching = _count(filter(Filter(outcome, family, task, step), read_traces(folder)), counts)
    shown = _select(matching, sort, limit)
    total = sum(counts.values())
    write_json(json_file, {"run": str(folder), "matched": total, "outcomes": dict(counts), "rollouts": shown})
    if json_file is not None and str(json_file) == "-":
        return
    console = Console(soft_wrap=True, highlight=False)
    for rollout in shown:
        _print_rollout(console, rollout)
    console.print(f"{len(shown)} of {total} matching rollouts" + "".join(f"  {k} {n}" for k, n in counts.items()))


def _count(traces: Iterable[Trace], counts: Counter[str]) -> Iterator[Trace]:
    for rollout in traces:
        counts[rollout["outcome"] or UNGRADED] += 1
        yield rollout


def _select(traces: Iterator[Trace], sort: str | None, limit: int) -> list[Trace]:
    """At most ``limit`` rollouts; holds no more than that in memory, and reads to the end so that counts are whole."""
    if sort is None:
        shown = list(islice(traces, limit))
        for _ in traces:
            pass
        return shown
    pick: Callable[..., list[Trace]] = heapq.nsmallest if sort == "reward" else heapq.nlargest
    return pick(limit, traces, key=_reward)


def _reward(trace: Trace) -> float:
    return float((trace.get("reward") or {}).get("total") or 0.0)


def _print_rollout(console: Console, trace: Trace) -> None:
    console.print(_heading(trace))
    if trace.get("cause"):
        console.print(Text(f"  cause    {plain(trace['cause'])}", style="yellow"))
    for segment in trace.get("segments", ()):
        kind = segment["kind"]
        for line in plain(segment["text"]).split("\n"):
            console.print(Text(f"  {kind:<7} │ ", style="dim").append(line, style=_STYLE.get(kind, "")))
    for call in trace.get("calls", ()):
        arguments = plain(str(call.get("arguments")))
        console.print(Text(f"  call    {call['tool']} {call['status']} {call.get('seconds', 0):.2f}s {arguments}"))
    for rejection in trace.get("rejections", ()):
        console.print(Text(f"  rejected {plain(str(rejection))}", style="yellow"))
    console.print()


def _heading(trace: Trace) -> Text:
    """One line: the task, where in the run, how it ended and what it earned."""
    heading = Text(plain(trace["key"]), style="bold")
    for name in ("step", "sample", "version"):
        if trace.get(name) is not None:
            heading.append(f"  {name} {trace[name]}", style="not bold")
    outcome = trace["outcome"] or UNGRADED
    heading.append(f"  {outcome}", style=_OUTCOME_STYLE.get(outcome, "red"))
    if outcome != UNGRADED:
        parts: dict[str, Any] = (trace.get("reward") or {}).get("parts") or {}
        detail = ", ".join(f"{name} {value:g}" for name, value in parts.items())
        heading.append(f"  reward {_reward(trace):.3g}" + (f" ({detail})" if detail else ""), style="not bold")
    if trace.get("advantage") is not None:
        heading.append(f"  advantage {trace['advantage']:+.3g}", style="not bold")
    if trace.get("seconds") is not None:
        heading.append(f"  {trace['seconds']:.2f}s", style="not bold")
    return heading
