"""The rows of a benchmark as a task source: for evaluation alone."""

from __future__ import annotations

from collections.abc import Sequence

from callwright.envs.tasks.benchmarks.rows import Rows
from callwright.envs.tasks.family import Slice, Split
from callwright.envs.tasks.task import Task
from callwright.serving.errors import UserError


class RowSource:
    """``tasks`` of one benchmark, with the documents that its searches look in."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def sample(self, split: Split, n: int, stream: int | str, start: int) -> list[Task]:
        raise UserError(f"{self._rows.name} is for evaluation: train on families, or on tasks.path")

    def evaluation(self, slice: Slice, n: int) -> list[Task]:
        return list(self._rows.tasks[:n]) if slice == "new_seeds" else []

    def documents(self) -> Sequence[tuple[str, str]]:
        return self._rows.documents
