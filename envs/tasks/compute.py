"""Computation that must be executed: the question holds everything but nobody does it in their head."""

from __future__ import annotations

from callwright.envs.tasks.computations import KINDS, ComputeDials
from callwright.envs.tasks.family import Draw, Family, Row, python


class Compute(Family[ComputeDials]):
    """One of the dialled kinds, drawn evenly."""

    dials_type = ComputeDials

    def row(self, draw: Draw) -> Row:
        kind = draw.rng.choice(self.dials.kinds)
        templates, compute = KINDS[kind]
        label, text = draw.wording(templates)
        drawn = compute(draw, self.dials)
        return Row(
            question=text.format(*drawn.operands),
            answer=drawn.answer,
            template=f"{kind}.{label}",
            plan=(python(drawn.program),),
            guesses=drawn.guesses,
            content=f"{kind} {drawn.operands}",
        )
