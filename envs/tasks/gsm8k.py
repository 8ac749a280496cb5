"""GSM8K, grade-school word problems: from the hub, or from a JSONL file of {id, question, answer, meta} lines.

The answer is one number and the scorer is numeric; there is no gold plan. A score on a sample of the rows is not
comparable with published ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from callwright.envs.tasks.task import Task

HUB_ID = "openai/gsm8k"
_MARK = "####"  # the hub's answers are a worked solution, this mark, and the number


def load_gsm8k(path: str | Path | None = None, split: str = "test", limit: int | None = None) -> list[Task]:
    """The rows as tasks, in file order: from ``path``, or from the hub (needs the package ``datasets``)."""
    rows = _hub_rows(split) if path is None else _file_rows(Path(path))
    return [_task(row, "train" if split == "train" else "benchmark") for row in islice(rows, limit)]


def _file_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _hub_rows(split: str) -> Iterator[dict[str, Any]]:
    from datasets import load_dataset  # late: a large import that the local path does not need

    for index, row in enumerate(load_dataset(HUB_ID, "main", split=split)):
        yield {"id": f"gsm8k-{split}-{index}", **row}


def _task(row: dict[str, Any], slice_: str) -> Task:
    return Task(
        key=str(row["id"]),
        family="gsm8k",
        question=row["question"].strip(),
        answer=row["answer"].rpartition(_MARK)[2].strip().replace(",", ""),
        slice=slice_,
        scorer="numeric",
        grounded=False,
    )
