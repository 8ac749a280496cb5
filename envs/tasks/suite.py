"""A mix of task families over one world: sampled for training, balanced for evaluation, rebuilt from a key.

Invariants: task number ``index`` of a stream depends on (seed, split, stream, index) and on nothing else, so that
arrival order changes nothing; no answer stands in its question; no evaluation task asks what training may ask; no guess
is the answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from callwright.envs.tasks.family import SLICES, SPLITS, Draw, Family, Row, Slice, Split
from callwright.envs.tasks.registry import FAMILIES
from callwright.envs.tasks.task import Task
from callwright.envs.tasks.world import World, WorldSpec

_DRAFTS = 2000  # drafts of one task before its dials are called impossible
_REPEATS = 50  # repeated questions that an evaluation skips in a row before it takes one


class FamilySpec(BaseModel):
    """One entry of a mix. NAME is the family; or any name with ``kind`` beside it, so that a family can stand twice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: float = Field(default=1.0, ge=0, description="Relative share of training tasks; 0: for evaluation only.")
    dials: dict[str, Any] = Field(default_factory=dict, description="Difficulty; listed at the end of this page.")
    kind: str | None = Field(default=None, description="The family, where NAME is a name of your own.")


class TaskSuite:
    """The tasks of one seed."""

    def __init__(
        self, families: Mapping[str, Family[Any]], weights: Mapping[str, float], world: World, seed: int
    ) -> None:
        self.families = dict(families)
        self.weights = dict(weights)
        self.world = world
        self.seed = seed

    def documents(self) -> Iterator[tuple[str, str]]:
        """The search corpus as (title, text)."""
        return self.world.documents()

    def sample(self, split: Split = "train", n: int = 1, stream: int | str = 0, start: int = 0) -> list[Task]:
        """Tasks ``start`` to ``start + n`` of a stream, families drawn by weight. Streams have no end."""
        return [self.task(self._key(split, stream, index)) for index in range(start, start + n)]

    def evaluation(self, slice: Slice, n: int, stream: int | str = "eval") -> list[Task]:
        """``n`` tasks of a slice, evenly over the families that have it; distinct while the dials allow it."""
        names = [name for name, family in self.families.items() if slice in family.slices]
        if not names:
            return []
        rows = {name: self._distinct(name, slice, stream, -(-n // len(names))) for name in names}
        return [rows[names[index % len(names)]][index // len(names)] for index in range(n)]

    def task(self, key: str) -> Task:
        """Rebuilds a task from its key, ``family/split/stream/index``."""
        name, split, _, index = parts = key.split("/") if key.count("/") == 3 else ["", "", "", ""]
        if name not in self.families or split not in SPLITS or not index.isdecimal():
            raise ValueError(f"no task of this suite has the key {key!r}")
        family: Family[Any] = self.families[name]
        if split in SLICES and split not in family.slices:
            raise ValueError(f"the family {name} has no slice {split}")
        draw = Draw(self._rng(*parts), split, self.world)
        for _ in range(_DRAFTS):
            row = family.row(draw)
            if _fair(row) and draw.owns(row.content):
                return _task(key, name, split, row)
        raise ValueError(f"the dials of {name} leave no fair task in {split}: {_DRAFTS} drafts refused")

    def _key(self, split: Split, stream: int | str, index: int) -> str:
        if "/" in str(stream):
            raise ValueError(f"a stream's name has no slash: {stream!r}")
        names = [name for name in self.families if split == "train" or split in self.families[name].slices]
        weights = [self.weights[name] for name in names]
        if not sum(weights):
            raise ValueError(f"no family of this suite has a weight in {split}")
        name = self._rng(split, stream, index).choices(names, weights)[0]
        return f"{name}/{split}/{stream}/{index}"

    def _distinct(self, name: str, slice: Slice, stream: int | str, n: int) -> list[Task]:
        tasks: list[Task] = []
        seen: set[str] = set()
        index = repeats = 0
        while len(tasks) < n:
            task = self.task(f"{name}/{slice}/{stream}/{index}")
            index += 1
            if task.question in seen and repeats < _REPEATS:
                repeats += 1
                continue
            repeats = 0
            seen.add(task.question)
            tasks.append(task)
        return tasks

    def _rng(self, *address: object) -> random.Random:
        return random.Random("|".join(map(str, ("task", self.seed, *address))))


def build_suite(families: Mapping[str, FamilySpec], world: WorldSpec | None = None, seed: int = 0) -> TaskSuite:
    """The suite of a mix. An unknown family or dial is a ``ValueError`` that names it."""
    built: dict[str, Family[Any]] = {}
    for name, spec in families.items():
        kind = spec.kind or name
        if kind not in FAMILIES:
            raise ValueError(FAMILIES.missing(kind))
        if "/" in name:
            raise ValueError(f"a family's name has no slash: {name!r}")
        family = FAMILIES[kind]
        built[name] = family(family.dials_type.model_validate(spec.dials))
    weights = {name: spec.weight for name, spec in families.items()}
    return TaskSuite(built, weights, World(seed, world), seed)


def _fair(row: Row) -> bool:
    # A one-character answer is guessed too often to say anything of a policy.
    return len(row.answer) > 1 and row.answer.lower() not in row.question.lower()


def _task(key: str, family: str, split: Split, row: Row) -> Task:
    return Task(
        key=key,
        family=family,
        question=row.question,
        answer=row.answer,
        plan=row.plan,
        tests=row.tests,
        guesses=tuple(dict.fromkeys(guess for guess in row.guesses if guess != row.answer)),
        slice=split,
        template=row.template,
        grounded=row.grounded,
        scorer=row.scorer,
        storage=row.storage,
        score=row.score,
    )
