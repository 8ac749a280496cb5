"""Two evaluations of the same tasks, paired: the difference, whether chance explains it, and the rows that flipped.

Invariant: only tasks that count in both are compared, each with itself; samples of one task are averaged first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from callwright.envs.benchmark_report import Groups, counted
from callwright.envs.statistics import Estimate, mcnemar, mean
from callwright.envs.traces import Trace, read_traces
from callwright.serving.errors import UserError


@dataclass(frozen=True, slots=True)
class Comparison:
    """``difference`` is B minus A. ``mcnemar_p`` is None where a task has several samples. ``gained`` and ``lost`` are
    the tasks that B does better and worse, ``unpaired`` those that count in one alone."""

    name: str
    a: float
    b: float
    difference: Estimate
    mcnemar_p: float | None
    paired: int
    unpaired: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "a": self.a,
            "b": self.b,
            "difference": self.difference.value,
            "interval": list(self.difference.interval),
            "method": f"paired {self.difference.method}",
            "mcnemar_p": self.mcnemar_p,
            "n_paired": self.paired,
            "n_unpaired": self.unpaired,
            "gained": list(self.gained),
            "lost": list(self.lost),
        }


def compare_folders(a: Path, b: Path) -> list[Comparison]:
    """One comparison for each trace file that both have. Raises UserError where they have nothing in common."""
    names = [path.stem for path in _trace_files(a) if (b / "traces" / path.name).is_file()]
    _trace_files(b)
    found = [_compare(name, list(read_traces(a, name)), list(read_traces(b, name))) for name in names]
    found = [comparison for comparison in found if comparison.paired]
    if not found:
        raise UserError(f"{a} and {b} have no task in common: evaluate both on the same rows")
    return found


def _trace_files(folder: Path) -> list[Path]:
    files = sorted((folder / "traces").glob("*.jsonl"))
    if not files:
        inner = sorted(path.parent.name for path in folder.glob("*/traces"))
        hint = f"; name one of its evaluations: {', '.join(inner)}" if inner else ""
        raise UserError(f"no traces in {folder}{hint}")
    return files


def _compare(name: str, a: Sequence[Trace], b: Sequence[Trace]) -> Comparison:
    left, right = counted(a), counted(b)
    keys = [key for key in left if key in right]
    pairs = {key: (_share(left, key), _share(right, key)) for key in keys}
    gained = tuple(key for key, (one, other) in pairs.items() if other > one)
    lost = tuple(key for key, (one, other) in pairs.items() if other < one)
    single = all(len(groups[key]) == 1 for groups in (left, right) for key in keys)
    return Comparison(
        name=name,
        a=fmean(one for one, _ in pairs.values()) if pairs else 0.0,
        b=fmean(other for _, other in pairs.values()) if pairs else 0.0,
        difference=mean([other - one for one, other in pairs.values()]),
        mcnemar_p=mcnemar(len(gained), len(lost)) if single else None,
        paired=len(keys),
        unpaired=len(left) + len(right) - 2 * len(keys),
        gained=gained,
        lost=lost,
    )


def _share(groups: Groups, key: str) -> float:
    return fmean(bool(trace["success"]) for trace in groups[key])
