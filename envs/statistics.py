"""Intervals, tests and votes. The bootstrap draws from a fixed seed: the same values give the same interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from callwright.envs.evaluate import wilson

_DRAWS = 2000
_SEED = 0
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, and how that was made."""

    value: float
    interval: Interval
    method: str

    def to_dict(self) -> dict[str, object]:
        return {"value": self.value, "interval": list(self.interval), "method": self.method}


def proportion(successes: int, n: int) -> Estimate:
    """A share of independent rows, with Wilson's interval."""
    return Estimate(successes / n if n else 0.0, wilson(successes, n), "wilson")


def mean(values: Sequence[float]) -> Estimate:
    """A mean over tasks, with the percentile interval of the bootstrap; (0, 1) for no values."""
    if not values:
        return Estimate(0.0, (0.0, 1.0), "bootstrap")
    numbers = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(_SEED).integers(len(numbers), size=(_DRAWS, len(numbers)))
    low, high = np.quantile(numbers[drawn].mean(axis=1), (0.025, 0.975))
    return Estimate(float(numbers.mean()), (float(low), float(high)), "bootstrap")


def mcnemar(gained: int, lost: int) -> float:
    """The two-sided exact p-value that as many rows flip one way as the other (McNemar, 1947, as a binomial test)."""
    flips = gained + lost
    tail = sum(comb(flips, i) for i in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**flips))


def most_voted(answers: Sequence[str]) -> int:
    """The place of the first answer that most agree with."""
    counts = Counter(answers)
    return answers.index(max(answers, key=lambda answer: counts[answer]))
