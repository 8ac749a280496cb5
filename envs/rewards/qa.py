"""SQuAD-style comparison of short answers (Rajpurkar et al., 2016): exact match and token F1 after its normalisation.

Invariant: an answer that normalises to nothing is wrong, whatever the gold answers are.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def squad_normalise(text: str) -> str:
    """Lower case without punctuation and the articles, words apart by one space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def squad_exact(solution: str, accepted: Sequence[str]) -> bool:
    """Whether the solution is one of the accepted answers."""
    said = squad_normalise(solution)
    return bool(said) and said in {squad_normalise(answer) for answer in accepted}


def squad_f1(solution: str, accepted: Sequence[str]) -> float:
    """The harmonic mean of the words' precision and recall, 0-1: the best over the accepted answers."""
    return max(
        (_f1(squad_normalise(solution).split(), squad_normalise(gold).split()) for gold in accepted), default=0.0
    )


def _f1(said: Sequence[str], gold: Sequence[str]) -> float:
    common = (Counter(said) & Counter(gold)).total()
    return 2 * common / (len(said) + len(gold)) if common else 0.0


MEANS: Mapping[str, Callable[[str, Sequence[str]], float]] = {"f1": squad_f1}
