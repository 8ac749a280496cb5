"""The invented world that the search corpus and the look-up tasks share: one document an entity.

Invariants: a world is rebuilt bit for bit from its seed and its spec; the training, evaluation and long pools share no
entity and no owner crosses a pool; a search for an entity's name ranks its own current document first; an absent name
has no document. Names are consonants without S and Y, so that a stemming index never merges two of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

LETTERS = "BCDFGHJKLMNPQRTVWXZ"
_DEPOTS = ("north", "south", "east", "west", "harbour", "hill")  # words, lest a search for a name finds a depot
_CROWDED = 0.6  # a name space fuller than this leaves too few absent names to draw from

Pool = Literal["train", "eval", "long"]
POOLS: tuple[Pool, ...] = ("train", "eval", "long")


def _as_weights(value: Any) -> Any:
    if isinstance(value, int):
        return evenly(value)
    return Counter(value) if isinstance(value, list | tuple) else value


Sizes = Annotated[dict[int, Annotated[float, Field(gt=0)]], BeforeValidator(_as_weights), Field(min_length=1)]
"""A dial of sizes: one number, a list of equally likely ones, or a mapping from each size to its weight."""


def evenly(*sizes: int) -> dict[int, float]:
    """Equally likely sizes."""
    return dict.fromkeys(sizes, 1)


def pick(rng: random.Random, sizes: Mapping[int, float]) -> int:
    """One of a dial's sizes, by weight."""
    return rng.choices(list(sizes), list(sizes.values()))[0]


class WorldSpec(BaseModel):
    """The world's dials. Lengths count characters; the long pool is one longer than the longest in training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entities: int = Field(default=3000, ge=4, description="Entities that training asks about.")
    eval_entities: int = Field(default=1000, ge=4, description="Entities kept for evaluation.")
    long_entities: int = Field(default=500, ge=4, description="Evaluation entities with longer names and codes.")
    name_length: Sizes = Field(
        default=evenly(3), description="Letters of a name, 2-16: a number, a list to draw from, or {length: weight}."
    )
    code_digits: Sizes = Field(
        default=evenly(3), description="Digits of a code, 1-16: a number, a list to draw from, or {digits: weight}."
    )
    extra_attributes: int = Field(default=0, ge=0, le=2, description="Facts that nobody asks for: depot, then stock.")
    distractors: float = Field(default=0.0, ge=0, le=1, description="Share of entities that another document mentions.")
    small_talk: float = Field(
        default=0.0, ge=0, le=1, description="Share of questions wrapped in words that say nothing."
    )
    stale: float = Field(default=0.0, ge=0, le=1, description="Share of entities with an outdated duplicate document.")

    @model_validator(mode="after")
    def _fits(self) -> WorldSpec:
        if not all(2 <= length <= 16 for length in self.name_length):
            raise ValueError("name_length must lie between 2 and 16")
        if not all(1 <= digits <= 16 for digits in self.code_digits):
            raise ValueError("code_digits must lie between 1 and 16")
        for length, weight in self.name_length.items():
            room = len(LETTERS) ** length
            wanted = round((self.entities + self.eval_entities) * weight / sum(self.name_length.values()))
            if wanted > _CROWDED * room:
                raise ValueError(f"{wanted} entities crowd the {room} names of length {length}: lengthen them")
        return self

    @property
    def k(self) -> int:
        """How many results a gold search asks for: more than one where outdated duplicates have to be told apart."""
        return 3 if self.stale else 1

    def name_lengths(self, pool: Pool) -> Mapping[int, float]:
        """The lengths of a pool's names."""
        return {max(self.name_length) + 1: 1} if pool == "long" else self.name_length

    def digits(self, pool: Pool) -> Mapping[int, float]:
        """The lengths of a pool's codes."""
        return {max(self.code_digits) + 1: 1} if pool == "long" else self.code_digits


@dataclass(frozen=True, slots=True)
class Entity:
    """One invented thing. ``extras`` are attributes that no question asks for."""

    name: str
    code: str
    owner: str
    extras: tuple[tuple[str, str], ...] = ()


def number(rng: random.Random, digits: int) -> int:
    """A random integer of exactly ``digits`` decimal digits."""
    return rng.randrange(10 ** (digits - 1), 10**digits)


def word(rng: random.Random, length: int) -> str:
    """A random run of name letters."""
    return "".join(rng.choice(LETTERS) for _ in range(length))


class World:
    """All entities of one seed, and the documents that describe them."""

    def __init__(self, seed: int, spec: WorldSpec | None = None) -> None:
        self.seed = seed
        self.spec = spec or WorldSpec()
        self._entities: dict[str, Entity] = {}
        self._pools: dict[Pool, tuple[str, ...]] = {}
        sizes = {"train": self.spec.entities, "eval": self.spec.eval_entities, "long": self.spec.long_entities}
        for pool in POOLS:
            self._pools[pool] = self._populate(pool, sizes[pool])

    @property
    def entities(self) -> Mapping[str, Entity]:
        """Every entity by its name."""
        return self._entities

    def names(self, pool: Pool) -> tuple[str, ...]:
        """The names of one pool, in a fixed order."""
        return self._pools[pool]

    def chain(self, name: str, hops: int) -> list[Entity]:
        """The entity, its owner, the owner's owner, ...: ``hops`` of them."""
        found = [self._entities[name]]
        while len(found) < hops:
            found.append(self._entities[found[-1].owner])
        return found

    def absent(self, rng: random.Random, pool: Pool) -> str:
        """A name of the pool's lengths that no document mentions."""
        while True:
            name = word(rng, pick(rng, self.spec.name_lengths(pool)))
            if name not in self._entities:
                return name

    def documents(self) -> Iterator[tuple[str, str]]:
        """The search corpus as (title, text), in an order that says nothing of the pools."""
        rng = self._rng("documents")
        pages = [
            page for pool in POOLS for name in self._pools[pool] for page in self._pages(self._entities[name], pool)
        ]
        rng.shuffle(pages)
        yield from pages

    def _rng(self, *address: object) -> random.Random:
        return random.Random("|".join(map(str, ("world", self.seed, *address))))

    def _populate(self, pool: Pool, size: int) -> tuple[str, ...]:
        rng, lengths, digits = self._rng(pool), self.spec.name_lengths(pool), self.spec.digits(pool)
        names: dict[str, None] = {}
        while len(names) < size:
            name = word(rng, pick(rng, lengths))
            if name not in self._entities:
                names[name] = None
        ring = list(names)
        # Owners form one ring, so that no chain of owners comes back to where it began.
        for name, owner in zip(ring, ring[1:] + ring[:1], strict=True):
            self._entities[name] = self._entity(rng, name, owner, digits)
        return tuple(ring)

    def _entity(self, rng: random.Random, name: str, owner: str, digits: Mapping[int, float]) -> Entity:
        extras = (("depot", rng.choice(_DEPOTS)), ("stock", str(number(rng, pick(rng, digits)))))
        code = str(number(rng, pick(rng, digits)))
        return Entity(name, code, owner, extras[: self.spec.extra_attributes])

    def _pages(self, entity: Entity, pool: Pool) -> Iterator[tuple[str, str]]:
        rng = self._rng("pages", entity.name)
        yield entity.name, _text(rng, entity, entity.code, entity.owner)
        if rng.random() < self.spec.stale:
            code = str(number(rng, len(entity.code)))
            # An old owner of the same name would mention it once more and outrank the current document.
            others = [name for name in rng.sample(self._pools[pool], 2) if name != entity.name]
            yield f"{entity.name} (old)", _text(rng, entity, code, others[0])
        if rng.random() < self.spec.distractors:
            note, pens = number(rng, 4), number(rng, len(entity.code))
            yield f"note {note}", f"note {note} tells that {entity.name} lost a box with {pens} pens."


def _text(rng: random.Random, entity: Entity, code: str, owner: str) -> str:
    facts = [("code", code), ("owner", owner), *entity.extras]
    rng.shuffle(facts)
    return " ".join(f"{entity.name} {attribute} {value}." for attribute, value in facts)
