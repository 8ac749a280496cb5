"""Write a function that passes unit tests run by the code executor; the reward-queue record alone decides.

The submitted solution is bound to the name ``answer`` in the tests. No gold call is needed: a solver may try its
function first, but the solution is what is graded.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from callwright.envs.tasks.family import Dials, Draw, Family, Row, Templates
from callwright.envs.tasks.world import Sizes, evenly, number

Level = Literal["linear", "pipeline", "filter"]
TEMPLATES = Templates(
    train=("write f: {}.", "write a function of x: {}.", "what function is {}?", "function f: {}?"),
    held=("write f of x: {}.",),
)
_Draft = tuple[str, str, str]  # description, solution, a plausible wrong solution


class UnitTestDials(Dials):
    """``levels`` of function; ``digits`` of the constants; ``steps`` of a pipeline; ``cases`` tested."""

    levels: tuple[Level, ...] = Field(("linear",), min_length=1)
    digits: Sizes = evenly(1, 2)
    steps: Sizes = evenly(3)
    cases: int = Field(4, ge=2, le=20)


class UnitTests(Family[UnitTestDials]):
    """Arithmetic on a number (linear, pipeline) or on a list (filter)."""

    dials_type = UnitTestDials

    def row(self, draw: Draw) -> Row:
        level = draw.rng.choice(self.dials.levels)
        label, text = draw.wording(TEMPLATES)
        while True:
            description, solution, wrong = _LEVELS[level](draw, self.dials)
            inputs = _inputs(draw.rng, level, self.dials.cases)
            outputs = _outputs(solution, inputs)
            # A constant passes tests that all want the same, and a modulus may change nothing: such drafts are no task.
            if any(output != outputs[0] for output in outputs) and _outputs(wrong, inputs) != outputs:
                break
        cases = zip(inputs, outputs, strict=True)
        return Row(
            question=text.format(description),
            answer=solution,
            template=f"{level}.{label}",
            guesses=(wrong,),
            tests="\n".join(f"assert answer({value!r}) == {output!r}" for value, output in cases),
            content=f"{level} {description}",
            grounded=False,
        )


def _linear(draw: Draw, dials: UnitTestDials) -> _Draft:
    times, plus = (number(draw.rng, draw.size(dials.digits)) for _ in range(2))
    return f"{times} times x plus {plus}", f"lambda x:{times}*x+{plus}", f"lambda x:{plus}*x+{times}"


def _pipeline(draw: Draw, dials: UnitTestDials) -> _Draft:
    said, code, previous = ["take x"], "x", "x"
    for _ in range(draw.size(dials.steps)):
        value = number(draw.rng, draw.size(dials.digits)) + 1
        words, operator = draw.rng.choice((("times", "*"), ("plus", "+"), ("minus", "-"), ("modulo", "%")))
        said.append(f"then {words} {value}")
        previous, code = code, f"({code}{operator}{value})"
    return ", ".join(said), f"lambda x:{code}", f"lambda x:{previous}"


def _filter(draw: Draw, dials: UnitTestDials) -> _Draft:
    times, least = (number(draw.rng, draw.size(dials.digits)) for _ in range(2))
    parity, rest = draw.rng.choice((("even", 0), ("odd", 1)))
    said = f"x is a list, keep the {parity} values of at least {least}, each times {times}, sorted"
    solution = f"lambda x:sorted(v*{times} for v in x if v%2=={rest} and v>={least})"
    return said, solution, f"lambda x:sorted(v*{times} for v in x if v>={least})"


_LEVELS: dict[Level, Callable[[Draw, UnitTestDials], _Draft]] = {
    "linear": _linear,
    "pipeline": _pipeline,
    "filter": _filter,
}


def _inputs(rng: random.Random, level: Level, cases: int) -> list[object]:
    if level == "filter":
        return [[rng.randrange(200) for _ in range(8)] for _ in range(cases)]
    return list(rng.sample(range(-50, 200), cases))


def _outputs(solution: str, inputs: list[object]) -> list[object]:
    function = eval(solution, {})  # text of this file's own making: a submitted solution never comes here
    return [function(value) for value in inputs]
