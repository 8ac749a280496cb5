"""Look-up over one to three documents: the code of an entity, of its owner, of its owner's owner."""

from __future__ import annotations

from pydantic import field_validator

from callwright.envs.tasks.family import Dials, Draw, Family, Row, Templates, web
from callwright.envs.tasks.world import Choices, Entity, number

OWNER = "the owner of {}"
TEMPLATES = Templates(
    train=(
        "code of {}?",
        "what is the code of {}?",
        "{} has what code?",
        "find the code for {}.",
        "what code is for {}?",
    ),
    held=("for {} find the code.",),
)


def reference(chain: list[Entity]) -> str:
    """How a question names the last entity of a chain of owners: by the first one."""
    text = chain[0].name
    for _ in chain[1:]:
        text = OWNER.format(text)
    return text


class LookupDials(Dials):
    """``hops``: how many documents must be read; one number, or several to draw from."""

    hops: Choices = (1, 2)

    @field_validator("hops")
    @classmethod
    def _in_range(cls, hops: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= count <= 3 for count in hops):
            raise ValueError("hops must lie between 1 and 3")
        return hops


class Lookup(Family[LookupDials]):
    """The answer is a random number that stands in one document only."""

    dials_type = LookupDials

    def row(self, draw: Draw) -> Row:
        chain = draw.world.chain(draw.name(), draw.rng.choice(self.dials.hops))
        label, text = draw.wording(TEMPLATES)
        answer = chain[-1].code
        shortcuts = [entity.code for entity in chain[:-1]] + [chain[0].owner]
        return Row(
            question=text.format(reference(chain)),
            answer=answer,
            template=label,
            plan=tuple(web(draw.world, entity.name) for entity in chain),
            guesses=(str(number(draw.rng, len(answer))), *shortcuts),
        )
