"""Rank agreement of two scores of the same rows, ties included. None where one of them is constant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def kendall(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Kendall's tau-b (Kendall, 1945)."""
    a, b = (np.sign(np.subtract.outer(np.asarray(v), np.asarray(v))) for v in (left, right))
    return _ratio(float((a * b).sum()), float((a * a).sum()), float((b * b).sum()))


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's rho: the correlation of mean ranks."""
    a, b = _ranks(left), _ranks(right)
    a, b = a - a.mean(), b - b.mean()
    return _ratio(float(a @ b), float(a @ a), float(b @ b))


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    v = np.asarray(values, dtype=np.float64)
    below, equal = (v[:, None] > v).sum(1), (v[:, None] == v).sum(1)
    return np.asarray(below + (equal + 1) / 2, dtype=np.float64)


def _ratio(top: float, left: float, right: float) -> float | None:
    bottom = (left * right) ** 0.5
    return top / bottom if bottom else None
