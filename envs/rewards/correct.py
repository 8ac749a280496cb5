"""Whether an answer is right, by comparison of texts: exact, numeric, or SQuAD's for questions about facts.

Invariant: a hedged answer ("13 or 12") is wrong. Nothing here runs or parses model text as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from callwright.envs.rewards.qa import squad_exact
from callwright.envs.tasks.task import Scorer, Task

_INTEGER = re.compile(r"([+-]?)0*(\d+)")
_NUMBER = re.compile(r"(?<![\w.])[+-]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?")
_LONGEST_NUMBER = 400  # digits; beyond it a comparison as numbers only burns time


def normalise(text: str) -> str:
    """The form in which answers are compared: outer space and case dropped, integers without sign noise or zeros."""
    squashed = " ".join(text.split()).casefold()
    integer = _INTEGER.fullmatch(squashed)
    if integer is None or not squashed.isascii():
        return squashed
    sign, digits = integer.groups()
    return f"-{digits}" if sign == "-" and digits != "0" else digits


def exact_match(solution: str, accepted: tuple[str, ...]) -> bool:
    """Whether the whole solution is one of the accepted answers."""
    return normalise(solution) in {normalise(answer) for answer in accepted}


def numbers_in(text: str) -> set[Fraction]:
    """The different numbers a text mentions. Thousands separators, a dollar sign and fractions are read."""
    found = set()
    for match in _NUMBER.findall(text):
        plain = match.replace(",", "").replace("$", "")
        if len(plain) <= _LONGEST_NUMBER and not re.search(r"/0+$", plain):
            numerator, _, denominator = plain.partition("/")
            found.add(Fraction(numerator) / Fraction(denominator or 1))
    return found


def numeric_match(solution: str, accepted: tuple[str, ...]) -> bool:
    """Whether the solution states one number, an accepted one. Two different numbers are a hedge, and wrong."""
    stated = numbers_in(solution)
    return len(stated) == 1 and any(stated == numbers_in(answer) for answer in accepted)


def is_correct(task: Task, solution: str) -> bool:
    """Whether the solution answers a task that is graded by comparison."""
    return _MATCHES[task.scorer](solution, (task.answer, *task.accepted))


def _says_something(solution: str, accepted: tuple[str, ...]) -> bool:
    """For tasks that are all deed."""
    return bool(solution.strip())


_MATCHES: Mapping[Scorer, Callable[[str, tuple[str, ...]], bool]] = {
    "exact": exact_match,
    "numeric": numeric_match,
    "qa": squad_exact,
    "any": _says_something,
}
