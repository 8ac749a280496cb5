"""Look-up over several documents: what is asked of an entity, of its owner, of its owner's owner."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from callwright.envs.tasks.family import Dials, Draw, Family, Row, Templates, web
from callwright.envs.tasks.world import Entity, Sizes, evenly, number, pick, word

OWNER = "the owner of {}"
TEMPLATES = Templates(
    train=(
        "{attribute} of {of}?",
        "what is the {attribute} of {of}?",
        "{of} has what {attribute}?",
        "find the {attribute} for {of}.",
        "what {attribute} is for {of}?",
        "for {of} what is the {attribute}?",
        "{of}: {attribute}?",
        "the {attribute} of {of} is what?",
        "find for me the {attribute} of {of}.",
    ),
    held=("for {of} find the {attribute}.",),
)
Attribute = Literal["code", "owner"]


def reference(chain: list[Entity]) -> str:
    """How a question names the last entity of a chain of owners: by the first one."""
    text = chain[0].name
    for _ in chain[1:]:
        text = OWNER.format(text)
    return text


class LookupDials(Dials):
    """``hops``: how many documents must be read, ``attributes``: what is asked of the last one; each one value, or
    several to draw from."""

    hops: Sizes = evenly(1, 2)
    attributes: tuple[Attribute, ...] = Field(("code",), min_length=1)

    @field_validator("hops")
    @classmethod
    def _in_range(cls, hops: dict[int, float]) -> dict[int, float]:
        if not all(1 <= count <= 6 for count in hops):
            raise ValueError("hops must lie between 1 and 6")
        return hops


class Lookup(Family[LookupDials]):
    """The answer is random and stands in one document only."""

    dials_type = LookupDials

    def row(self, draw: Draw) -> Row:
        chain = draw.world.chain(draw.name(), pick(draw.rng, self.dials.hops))
        attribute = draw.rng.choice(self.dials.attributes)
        label, text = draw.wording(TEMPLATES)
        last = chain[-1]
        if attribute == "code":
            answer, invented = last.code, str(number(draw.rng, len(last.code)))
        else:
            answer, invented = last.owner, word(draw.rng, len(last.owner))
        shortcuts = [value for entity in chain for value in (entity.code, entity.owner)]
        return Row(
            question=text.format(of=reference(chain), attribute=attribute),
            answer=answer,
            template=f"{attribute}.{label}",
            plan=tuple(web(draw.world, entity.name) for entity in chain),
            guesses=(invented, *shortcuts),
        )
