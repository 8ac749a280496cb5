"""No tool is needed: the answer follows from the question by a rule of reading, yet does not stand in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from callwright.envs.tasks.family import Dials, Draw, Family, Row, Templates
from callwright.envs.tasks.world import number, pick

Rule = Literal["backwards", "next"]
TEMPLATES: Mapping[Rule, Templates] = {
    "backwards": Templates(
        train=("{} backwards?", "what is {} backwards?", "spell {} backwards.", "find {} spelt backwards."),
        held=("what is {} spelt backwards?",),
    ),
    "next": Templates(
        train=("number after {}?", "what is the number after {}?", "find the number after {}.", "{} plus 1?"),
        held=("what number is after {}?",),
    ),
}


class DirectDials(Dials):
    """``rules``: spell a name backwards, or the next number (of a world code's length)."""

    rules: tuple[Rule, ...] = Field(("backwards",), min_length=1)


class Direct(Family[DirectDials]):
    """A call here is wasted; the reward for a clean finish is the same without it."""

    dials_type = DirectDials

    def row(self, draw: Draw) -> Row:
        rule = draw.rng.choice(self.dials.rules)
        label, text = draw.wording(TEMPLATES[rule])
        if rule == "backwards":
            given = draw.name()
            answer, wrong = given[::-1], [given, "".join(draw.rng.sample(given, len(given)))]
        else:
            digits = pick(draw.rng, draw.world.spec.digits(draw.pool))
            value = number(draw.rng, digits)
            given, answer = str(value), str(value + 1)
            wrong = [given, str(value + 2), str(number(draw.rng, digits))]
        return Row(
            question=text.format(given),
            answer=answer,
            template=f"{rule}.{label}",
            guesses=tuple(wrong),
            content="" if rule == "backwards" else f"{rule} {given}",
            grounded=False,
        )
