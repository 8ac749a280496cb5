"""GSM8K, grade-school word problems (Cobbe et al., 2021): the answer is one number, and the scorer is numeric.

A score on a sample of the rows is not comparable with published ones.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from callwright.envs.tasks.benchmarks.benchmark import Benchmark, Hub, Row, asked, file_rows, hub_rows
from callwright.envs.tasks.task import Task

_HUB = Hub("openai/gsm8k", "main", "test")
_MARK = "####"  # the hub's answers are a worked solution, this mark, and the number


def load_gsm8k(path: str | Path | None = None, split: str = "test", limit: int | None = None) -> list[Task]:
    """The rows as tasks, in file order: from ``path``, or from the hub; the split ``train`` is for training."""
    rows = (
        hub_rows(replace(_HUB, split=split), lambda index, row: {"id": f"gsm8k-{split}-{index}", **row})
        if path is None
        else None
    )
    found = [_task(row) for row in islice(rows or file_rows(Path(str(path))), limit)]
    return [replace(task, slice="train") for task in found] if split == "train" else found


def _task(row: Row) -> Task:
    return Task(
        key=str(row["id"]),
        family="gsm8k",
        question=asked(GSM8K.prompt, row),
        answer=row["answer"].rpartition(_MARK)[2].strip().replace(",", ""),
        slice="benchmark",
        scorer="numeric",
        grounded=False,
    )


GSM8K = Benchmark(
    name="gsm8k",
    hub=_HUB,
    sample="gsm8k_test_200.jsonl",
    licence="MIT",
    tools=("code",),
    prompt="{question}",
    metric="accuracy",
    task=_task,
    hub_row=lambda index, row: {"id": f"gsm8k-test-{index}", **row},
)
