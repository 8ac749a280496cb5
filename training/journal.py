"""The rollouts of an evaluation that have ended, kept as they end, so that an interrupted one goes on where it was.

Invariants: a rollout counts as kept once its whole line is there; a fault of ours is never kept; the finished trace
file appears whole, in the order of the rows, and only then does the journal go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from callwright.envs.traces import SCHEMA, Trace, TraceWriter
from callwright.envs.trajectory import Outcome

Place = tuple[str, int]


def place_of(trace: Trace) -> Place:
    """What tells the rollouts of one evaluation apart: task and sample."""
    return str(trace["key"]), int(trace["sample"])


class Journal:
    """``with Journal(folder, "tools") as journal``: what is ``kept`` needs no second run."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self._path = folder / f"{name}.journal"
        whole = _whole_lines(self._path)
        self.kept = {place_of(trace): trace for trace in map(json.loads, whole) if _final(trace)}
        self._path.write_text("".join(f"{line}\n" for line in whole))  # without a torn last line
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, trace: Trace) -> None:
        """Keep one rollout; of one place the last counts."""
        self._file.write(json.dumps({"schema": SCHEMA, **trace}, allow_nan=False, separators=(",", ":")) + "\n")
        self._file.flush()
        self.kept[place_of(trace)] = trace

    def finish(self, order: Iterable[Place]) -> list[Trace]:
        """Write the trace file in this order and end the journal; returns what was written."""
        traces = [self.kept[place] for place in order]
        with TraceWriter(self._folder / "traces", self._name) as writer:
            for trace in traces:
                writer.write(trace)
        self._file.close()
        self._path.unlink()
        return traces

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _whole_lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    *whole, _torn = path.read_text(encoding="utf-8").split("\n")
    return whole


def _final(trace: Trace) -> bool:
    return Outcome(trace["outcome"]).in_baseline
