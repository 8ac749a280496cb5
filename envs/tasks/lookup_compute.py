"""Look-up, then compute: the found code is the base of a modular power.

The slice ``unseen_composition`` asks for one more hop than training ever does: search, search, then code.
"""

from __future__ import annotations

from pydantic import field_validator

from callwright.envs.tasks.family import Draw, Family, Row, Templates, python, web
from callwright.envs.tasks.lookup import reference
from callwright.envs.tasks.modpow import PowerDials, modpow_program
from callwright.envs.tasks.world import Choices, number

TEMPLATES = Templates(
    train=(
        "code of {} to the power {} modulo {}?",
        "what is the code of {} to the power {} mod {}?",
        "find the code for {} power {} modulo {}.",
        "what code is for {}, to the power {} mod {}?",
        "{} has what code power {} mod {}?",
    ),
    held=("for {} find the code to the power {} modulo {}.",),
)


class LookupComputeDials(PowerDials):
    """``hops`` of the look-up in training; the held-out composition has one more than the largest."""

    hops: Choices = (1,)

    @field_validator("hops")
    @classmethod
    def _in_range(cls, hops: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= count <= 2 for count in hops):
            raise ValueError("hops must be 1 or 2")
        return hops


class LookupCompute(Family[LookupComputeDials]):
    """Needs the document's number and an executed computation; neither alone gives the answer."""

    dials_type = LookupComputeDials
    slices = Family.slices | {"unseen_composition"}

    def row(self, draw: Draw) -> Row:
        composed = draw.split == "unseen_composition"
        hops = max(self.dials.hops) + 1 if composed else draw.rng.choice(self.dials.hops)
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
