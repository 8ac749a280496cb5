"""The code of a name that no document mentions: worded like a look-up, so that only a search can tell the two apart."""

from __future__ import annotations

from callwright.envs.tasks.family import UNKNOWN, Dials, Draw, Family, Row, web
from callwright.envs.tasks.lookup import TEMPLATES
from callwright.envs.tasks.world import number, pick


class AbsentDials(Dials):
    """No dials: names and wordings follow the world and the look-up family."""


class Absent(Family[AbsentDials]):
    """The honest answer is that there is none."""

    dials_type = AbsentDials

    def row(self, draw: Draw) -> Row:
        name = draw.world.absent(draw.rng, draw.pool)
        label, text = draw.wording(TEMPLATES)
        digits = pick(draw.rng, draw.world.spec.digits(draw.pool))
        return Row(
            question=text.format(of=name, attribute="code"),
            answer=UNKNOWN,
            template=label,
            plan=(web(draw.world, name),),
            guesses=(str(number(draw.rng, digits)), str(number(draw.rng, digits))),
            content=f"absent {name}",
            grounded=False,
        )
