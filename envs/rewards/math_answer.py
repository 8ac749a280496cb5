"""The one answer that a mathematical solution gives.

Invariant: a solution that gives two, or hedges in words, gives none: math-verify would take the better of them.
"""

from __future__ import annotations

import re

LONGEST_ANSWER = 2000  # characters; beyond it a comparison only burns time
_BOX = r"\boxed{"
_HEDGE = re.compile(r"\b(or|either|maybe|perhaps|possibly)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,]+")
_SPANS = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


def one_answer(solution: str) -> str | None:
    """The answer as LaTeX: the one box, else the one formula between dollars, else the whole text; None for none."""
    if len(solution) > LONGEST_ANSWER:
        return None
    found = _boxes(solution)
    if not found:
        found = [next(filter(None, groups)) for groups in _SPANS.findall(solution)]
    answers = {" ".join(answer.split()) for answer in found or [solution]}
    answer = answers.pop().rstrip(".").strip()
    if answers or not answer or _HEDGE.search(solution) or _says_two(answer):
        return None
    return answer


def _says_two(equation: str) -> bool:
    """Whether it is an equation with two different results, or with a number on its left, as in 13 = 12."""
    left, *rights = (side.strip() for side in equation.split("="))
    return len(set(rights)) > 1 or bool(rights and _NUMBER.fullmatch(left) and left != rights[0])


def _boxes(text: str) -> list[str]:
    """What stands in the boxes; an open one holds the rest."""
    found, at = [], text.find(_BOX)
    while at >= 0:
        start = end = at + len(_BOX)
        depth = 1
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append(text[start : end - 1] if not depth else text[start:])
        at = text.find(_BOX, end)
    return found
