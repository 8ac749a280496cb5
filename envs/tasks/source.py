"""Where tasks come from: a procedural suite, or the rows of a benchmark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from callwright.envs.tasks.benchmarks.gsm8k import load_gsm8k
from callwright.envs.tasks.family import Slice, Split
from callwright.envs.tasks.suite import FamilySpec, build_suite
from callwright.envs.tasks.task import Task
from callwright.envs.tasks.world import WorldSpec
from callwright.serving.errors import UserError


class TaskSource(Protocol):
    """Tasks for training and evaluation, addressed so that the same arguments give the same tasks."""

    def sample(self, split: Split, n: int, stream: int | str, start: int) -> list[Task]:
        """Tasks ``start`` to ``start + n`` of a stream."""
        ...

    def evaluation(self, slice: Slice, n: int) -> list[Task]:
        """At most ``n`` held-out tasks of a slice; empty where the source has no such slice."""
        ...

    def documents(self) -> Iterable[tuple[str, str]]:
        """The search corpus as (title, text)."""
        ...


class TasksSection(Protocol):
    """The config's section about tasks."""

    @property
    def world(self) -> WorldSpec: ...
    @property
    def families(self) -> Mapping[str, FamilySpec]: ...
    @property
    def path(self) -> str | None: ...


class Gsm8k:
    """GSM8K: test rows for evaluation, train rows (hub only) for training."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = path.endswith(".jsonl")
        if self._local and not Path(path).is_file():
            raise UserError(f"tasks.path: no file {path}")
        self._rows: dict[str, list[Task]] = {}

    def sample(self, split: Split, n: int, stream: int | str, start: int) -> list[Task]:
        if split == "train" and self._local:
            raise UserError("tasks.path names a file of test rows: train on families, or on the hub's openai/gsm8k")
        rows = self._load("train" if split == "train" else "test")
        return [random.Random(f"gsm8k|{stream}|{index}").choice(rows) for index in range(start, start + n)]

    def evaluation(self, slice: Slice, n: int) -> list[Task]:
        return list(self._load("test")[:n]) if slice == "new_seeds" else []

    def documents(self) -> Sequence[tuple[str, str]]:
        return []

    def _load(self, split: str) -> list[Task]:
        if split not in self._rows:
            self._rows[split] = list(load_gsm8k(self._path if self._local else None, split=split))
        return self._rows[split]


def open_source(section: TasksSection, seed: int) -> TaskSource:
    """The source that a config's ``tasks`` section names. Raises UserError."""
    if section.path is not None:
        return Gsm8k(section.path)
    if not section.families:
        raise UserError("tasks.families is empty: name at least one family, or set tasks.path")
    return build_suite(section.families, section.world, seed)
