"""A run's numbers by step, its log of events and its held-out scores, from the files that a run folder holds.

Every number here is finite: what was not is null, and an alarm in the log.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callwright.envs.trajectory import Outcome
from callwright.serving.errors import UserError
from callwright.training.alarms import MARK, STOP
from callwright.training.checkpoints import complete

ZERO_VARIANCE_SHARE = 0.5  # from this share of groups without spread, a step is worth a line in the log
Metrics = dict[str, Any]


def curves(run: Path) -> dict[str, Any]:
    """``{"steps", "series": {name: [number | null]}, "events": [{"step", "kind", "text"}], "scores"}``."""
    rows = list(_metrics(run / "metrics.jsonl"))
    # Alarms stand in the row in which they began: they are events, not a curve.
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step" and not _is_mark(name)))
    events = [event for row in rows for event in _events(row)]
    events += [_event(step, "checkpoint", f"{path.name} is whole") for step, path in complete(run / "checkpoints")]
    return {
        "steps": [row["step"] for row in rows],
        "series": {name: [_finite(row.get(name)) for row in rows] for name in names},
        "events": sorted(events, key=lambda event: float(event["step"])),
        "scores": {name: scores for name in ("before", "after") if (scores := _scores(run / f"{name}.json"))},
    }


def _metrics(path: Path) -> Iterator[Metrics]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):  # still being written
                return
            try:
                row = json.loads(line)
                row["step"] + 0
            except (ValueError, KeyError, TypeError):
                raise UserError(f"{path}:{number}: not a line of metrics with a step") from None
            yield row


def _events(row: Metrics) -> Iterator[dict[str, Any]]:
    step = row["step"]
    counts = {outcome: row.get(f"outcome/{outcome}") or 0 for outcome in Outcome}
    for outcome, count in counts.items():
        if outcome is not Outcome.SCORED and count:
            yield _event(step, "fault", f"{outcome}: {count:g} of {sum(counts.values()):g} rollouts")
    share = _finite(row.get("zero_variance_share"))
    if share is not None and share >= ZERO_VARIANCE_SHARE:
        yield _event(step, "zero variance", f"{share:.0%} of the groups have no spread and teach nothing")
    for name, value in row.items():
        if name.startswith(MARK):
            yield _event(step, "alarm", f"{name.removeprefix(MARK)} ({value:.3g})")
        elif name.startswith(STOP):
            yield _event(step, "stop", f"the alarm {name.removeprefix(STOP)} ended the run")
        elif isinstance(value, float) and not math.isfinite(value):
            yield _event(step, "alarm", f"{name} is {value}")


def _is_mark(name: str) -> bool:
    return name.startswith((MARK, STOP))


def _event(step: float, kind: str, text: str) -> dict[str, Any]:
    return {"step": step, "kind": kind, "text": text}


def _finite(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _scores(path: Path) -> dict[str, dict[str, float]]:
    """Held-out success by mode and slice of an evaluation; empty where there was none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text())
        modes = {mode: found[mode] for mode in ("greedy", "sampled") if mode in found}
        return {mode: {"all": score["success"], **score["slices"]} for mode, score in modes.items()}
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: not the scores of an evaluation") from None
