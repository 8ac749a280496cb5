"""An index of a run's rollouts: a short row each, and where its line stands, so that one is read when it is opened.

Invariants: a trace file is read once (it is whole from the moment it has its name). Rows are only appended. Where a
file was replaced or removed, as by a resumed run, ``generation`` goes up and the rows begin anew.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callwright.envs.traces import Trace, parse_trace, trace_files

COLUMNS = (
    *("file", "line", "step", "sample", "family", "outcome", "slice", "reward", "advantage", "success"),
    *("tokens", "calls", "rejections", "seconds", "key"),
)
Row = tuple[Any, ...]


@dataclass(slots=True)
class _File:
    path: Path
    identity: tuple[int, int, int]  # another inode, size or time of change: another file
    offsets: list[int] = field(default_factory=list)  # where each line begins, in bytes
    read_to: int = 0

    @property
    def whole(self) -> bool:
        return self.read_to >= self.identity[1]


class TraceIndex:
    """Not for two threads at once: the caller holds a lock around ``refresh`` and ``read``."""

    def __init__(self, run: Path) -> None:
        """Raises UserError where the folder has no traces."""
        trace_files(run)
        self.run = run
        self.generation = 0
        self.rows: list[Row] = []
        self._files: dict[str, _File] = {}

    def refresh(self, budget_s: float = float("inf")) -> bool:
        """Read what is new, for about ``budget_s`` seconds; returns whether nothing is left. Raises UserError."""
        found = {path.stem: path for path in trace_files(self.run)}
        if any(name not in found or _identity(found[name]) != file.identity for name, file in self._files.items()):
            self.generation += 1
            self.rows, self._files = [], {}
        deadline = time.monotonic() + budget_s
        for name, path in found.items():
            file = self._files.setdefault(name, _File(path, _identity(path)))
            if not file.whole and not self._read_on(name, file, deadline):
                return False
        return True

    def read(self, file: str, line: int) -> Trace:
        """One whole rollout; lines count from 1. Raises LookupError where the index has none such."""
        entry = self._files[file]
        if not 1 <= line <= len(entry.offsets):
            raise LookupError(f"{file} has no line {line}")
        with entry.path.open("rb") as lines:
            lines.seek(entry.offsets[line - 1])
            return parse_trace(lines.readline(), f"{entry.path}:{line}")

    def _read_on(self, name: str, file: _File, deadline: float) -> bool:
        with file.path.open("rb") as lines:
            lines.seek(file.read_to)
            for text in lines:
                number = len(file.offsets) + 1
                self.rows.append(_row(parse_trace(text, f"{file.path}:{number}"), name, number))
                file.offsets.append(file.read_to)
                file.read_to += len(text)
                if time.monotonic() > deadline:
                    return False
        return True


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _row(trace: Trace, file: str, line: int) -> Row:
    sampled = (part for part in trace.get("segments", ()) if part["kind"] == "sampled")
    values = {
        **trace,
        "file": file,
        "line": line,
        "reward": (trace.get("reward") or {}).get("total"),
        "tokens": sum(len(part["ids"]) for part in sampled),
        "calls": len(trace.get("calls", ())),
        "rejections": sorted({rejection["code"] for rejection in trace.get("rejections", ())}),
    }
    return tuple(_short(values.get(column)) for column in COLUMNS)


def _short(value: Any) -> Any:
    """A number as a table shows it; the rollout itself has every digit."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
