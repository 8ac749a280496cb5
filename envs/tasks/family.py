"""What a procedural task family is, and the one source of randomness it may use.

Invariants: a family makes a row from a ``Draw`` alone, so that the same address gives the same row; held-out templates
are used in the slice ``unseen_template`` and nowhere else; what a row is about (``Row.content``) belongs either to
training or to evaluation, never to both.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

from callwright.envs.tasks.storage import StorageGoal
from callwright.envs.tasks.task import Score, Scorer, Step
from callwright.envs.tasks.world import Pool, World, pick

Slice = Literal["new_seeds", "unseen_template", "unseen_composition", "unseen_length"]
Split = Literal["train", "new_seeds", "unseen_template", "unseen_composition", "unseen_length"]
SLICES: tuple[Slice, ...] = get_args(Slice)
SPLITS: tuple[Split, ...] = get_args(Split)
UNKNOWN = "unknown"

_FILLERS = (
    *("please", "now", "hello", "well", "so", "ok", "then", "again", "just", "today", "say", "hey"),
    *("kindly", "friend", "look", "good", "day", "thanks", "soon", "here", "there", "next", "also", "maybe"),
)
_EVAL_SHARE = 8  # one content in this many is kept for evaluation


class Dials(BaseModel):
    """Base of every family's difficulty dials: an unknown dial is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


D = TypeVar("D", bound=Dials)


@dataclass(frozen=True, slots=True)
class Row:
    """A family's draft of a task.

    ``content`` identifies what the row asks apart from its wording; empty where the world's pools already keep training
    and evaluation apart. ``guesses`` may contain the answer here: the suite drops it.
    """

    question: str
    answer: str
    template: str
    plan: tuple[Step, ...] = ()
    guesses: tuple[str, ...] = ()
    tests: str | None = None
    content: str = ""
    grounded: bool = True
    scorer: Scorer = "exact"
    storage: StorageGoal | None = None
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class Templates:
    """The wordings of a family: those of training, and those that no training stage sees."""

    train: Sequence[str]
    held: Sequence[str]


@dataclass(frozen=True, slots=True)
class Draw:
    """Everything one row may depend on: its own random numbers, the split it is for, and the world."""

    rng: random.Random
    split: Split
    world: World

    @property
    def pool(self) -> Pool:
        """The pool of entities this split asks about."""
        if self.split == "train":
            return "train"
        return "long" if self.split == "unseen_length" else "eval"

    def name(self) -> str:
        """An entity of the pool."""
        return self.rng.choice(self.world.names(self.pool))

    def size(self, sizes: Mapping[int, float]) -> int:
        """One of a dial's sizes; in the slice ``unseen_length`` one more than the largest."""
        return max(sizes) + 1 if self.split == "unseen_length" else pick(self.rng, sizes)

    def wording(self, templates: Templates) -> tuple[str, str]:
        """A template's label and its text, wrapped in small talk where the world has it."""
        kind = "held" if self.split == "unseen_template" else "train"
        texts = templates.held if kind == "held" else templates.train
        index = self.rng.randrange(len(texts))
        return f"{kind}.{index}", self._small_talk(texts[index])

    def _small_talk(self, text: str) -> str:
        # Without it every operand has one of a few positions, and a small model copies by position, not by content.
        if self.rng.random() >= self.world.spec.small_talk:
            return text
        before = self.rng.choices(_FILLERS, k=self.rng.randrange(7))
        after = self.rng.choices(_FILLERS, k=self.rng.randrange(4))
        return " ".join((*before, text, *after))

    def owns(self, content: str) -> bool:
        """Whether this split may ask about ``content``: a fixed hash keeps training and evaluation apart."""
        if not content:
            return True
        bucket = int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big") % _EVAL_SHARE
        return (bucket == 0) == (self.split != "train")


class Family(ABC, Generic[D]):
    """A task family: typed dials, the tools it may need, its evaluation slices, and one method that makes a row."""

    dials_type: ClassVar[type[Dials]]
    tools: ClassVar[tuple[str, ...]] = ("web", "code")
    slices: ClassVar[frozenset[Slice]] = frozenset({"new_seeds", "unseen_template", "unseen_length"})

    def __init__(self, dials: D) -> None:
        self.dials = dials

    @abstractmethod
    def row(self, draw: Draw) -> Row:
        """A candidate row. The suite asks again where it is trivial, leaks its answer or belongs to the other side."""


def web(world: World, name: str) -> Step:
    """The gold search for an entity: its bare name, because the corpus is searched for documents with all words."""
    return Step("web", {"q": name, "k": world.spec.k})


def python(program: str) -> Step:
    """The gold call that runs a one-line program. ``program`` holds no single quote."""
    return Step("code", {"code_command": f"python3 -c '{program}'"})
