"""What a benchmark declares, and how its rows are read: from the hub, or from a JSONL file of the same rows.

Invariants: both sources give rows of one shape, ``{id, question, answer, meta}``, and one task a row in the order of
the source; a benchmark's tools, prompt, scorer, metric and licence stand in its own file and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from callwright.envs.tasks.task import Task
from callwright.serving.errors import UserError

Row = Mapping[str, Any]
Metric = Literal["accuracy", "exact_match", "pass_rate", "ast_accuracy"]


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the full set stands: dataset id, configuration (None for the only one) and split."""

    id: str
    config: str | None
    split: str


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark. ``metric`` names what ``Task.scorer`` decides, and the share of right rows is its value;
    ``means`` are further metrics by name, of which a report gives the mean. ``hub_row`` turns row ``index`` of the hub
    into the common shape. ``package_rows`` are the rows of a set that no hub has, but the package that scores it.
    ``sample`` is its file's name in a folder of samples, None where there is none; ``needs`` is the module that its
    scorer imports. ``together`` completes rows that take something from the others of their set."""

    name: str
    hub: Hub | None
    sample: str | None
    licence: str
    tools: tuple[str, ...]
    prompt: str
    metric: Metric
    task: Callable[[Row], Task]
    hub_row: Callable[[int, Row], Row]
    means: tuple[str, ...] = ()
    needs: str | None = None
    package_rows: Callable[[], Iterator[Row]] | None = None
    together: Callable[[Sequence[Row]], Iterator[Row]] | None = None

    @property
    def searches(self) -> bool:
        """Whether its rows are answered from a search corpus."""
        return "web" in self.tools


def load_tasks(benchmark: Benchmark, rows: Path | None = None, limit: int | None = None) -> list[Task]:
    """The first ``limit`` rows as tasks, from ``rows`` (a JSONL file, or a folder that has the benchmark's sample) or
    from the hub. Raises UserError."""
    path = None if rows is None else _file(benchmark, rows)
    found = _full_set(benchmark) if path is None else file_rows(path)
    if benchmark.together is not None:
        found = benchmark.together(list(found))
    return [benchmark.task(row) for row in islice(found, limit)]


def asked(prompt: str, row: Row) -> str:
    """The row's question in the benchmark's prompt."""
    return prompt.replace("{question}", str(row["question"]).strip())


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a JSONL file. Raises UserError that names the line."""
    return json_lines(path, ("id", "question", "answer"))


def json_lines(path: Path, needed: tuple[str, ...]) -> Iterator[Row]:
    """The objects of a JSONL file, each with the ``needed`` keys. Raises UserError that names the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not a JSON line ({error})") from None
        missing = [key for key in needed if not isinstance(row, dict) or key not in row]
        if missing:
            raise UserError(f"{path}:{number}: needs {', '.join(missing)}")
        yield row


def hub_rows(hub: Hub, hub_row: Callable[[int, Row], Row]) -> Iterator[Row]:
    """The rows of the hub's set, through the package ``datasets``. Raises UserError where it cannot be had."""
    from datasets import load_dataset  # late: a large import that a local file does not need

    try:
        found = load_dataset(hub.id, hub.config, split=hub.split)
    except (OSError, ValueError) as error:  # what datasets raises without a network, or for a set that is not there
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"the hub's {hub.id} cannot be read ({first}); name a local copy with rows=FILE") from None
    for index, row in enumerate(found):
        yield hub_row(index, row)


def _full_set(benchmark: Benchmark) -> Iterator[Row]:
    if benchmark.hub is not None:
        return hub_rows(benchmark.hub, benchmark.hub_row)
    if benchmark.package_rows is None:
        raise UserError(f"{benchmark.name} has no full set; name a local copy with rows=FILE")
    return benchmark.package_rows()


def _file(benchmark: Benchmark, rows: Path) -> Path | None:
    """The file to read; None where a folder of samples was named and the benchmark has none, only its package."""
    if rows.is_dir() and benchmark.sample is None:
        return None
    path = rows / str(benchmark.sample) if rows.is_dir() else rows
    if not path.is_file():
        raise UserError(f"{benchmark.name}: no file {path}; rows= names a JSONL file, or a folder of samples")
    return path
