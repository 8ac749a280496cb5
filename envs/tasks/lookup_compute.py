"""Look-up, then compute: the found code is the base of a modular power.

The slice ``unseen_composition`` asks for a number of searches before the computation that training never does.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from callwright.envs.tasks.family import Draw, Family, Row, Templates, python, web
from callwright.envs.tasks.lookup import reference
from callwright.envs.tasks.modpow import PowerDials, modpow_program
from callwright.envs.tasks.world import Sizes, evenly, number, pick

TEMPLATES = Templates(
    train=(
        "code of {} to the power {} modulo {}?",
        "what is the code of {} to the power {} mod {}?",
        "find the code for {} power {} modulo {}.",
        "what code is for {}, to the power {} mod {}?",
        "{} has what code power {} mod {}?",
        "for {} what is the code, to the power {} modulo {}?",
        "{}: code power {} mod {}?",
        "the code of {} power {} modulo {} is what?",
        "find for me the code of {} to the power {} mod {}.",
    ),
    held=("for {} find the code to the power {} modulo {}.",),
)


class LookupComputeDials(PowerDials):
    """``hops`` of the look-up in training; ``composed_hops`` in the slice ``unseen_composition`` (null: one more than
    the largest)."""

    hops: Sizes = evenly(1)
    composed_hops: int | None = Field(None, ge=1, le=6)

    @field_validator("hops")
    @classmethod
    def _in_range(cls, hops: dict[int, float]) -> dict[int, float]:
        if not all(1 <= count <= 5 for count in hops):
            raise ValueError("hops must lie between 1 and 5")
        return hops

    @model_validator(mode="after")
    def _unseen(self) -> Self:
        if self.composed_hops in self.hops:
            raise ValueError(f"composed_hops must not be one of hops: {self.composed_hops}")
        return self

    @property
    def unseen_hops(self) -> int:
        """The look-ups of the composition that no training task has."""
        return self.composed_hops or max(self.hops) + 1


class LookupCompute(Family[LookupComputeDials]):
    """Needs the document's number and an executed computation; neither alone gives the answer."""

    dials_type = LookupComputeDials
    slices = Family.slices | {"unseen_composition"}

    def row(self, draw: Draw) -> Row:
        composed = draw.split == "unseen_composition"
        hops = self.dials.unseen_hops if composed else pick(draw.rng, self.dials.hops)
        chain = draw.world.chain(draw.name(), hops)
        exponent, modulus = self.dials.exponent_and_modulus(draw)
        label, text = draw.wording(TEMPLATES)
        code = chain[-1].code
        return Row(
            question=text.format(reference(chain), exponent, modulus),
            answer=str(pow(int(code), exponent, modulus)),
            template=label,
            plan=(*(web(draw.world, entity.name) for entity in chain), python(modpow_program(code, exponent, modulus))),
            guesses=(str(number(draw.rng, len(str(modulus)))), code, str(int(code) % modulus), chain[0].code),
        )
