"""Rollout traces on disk: one JSON object a rollout, one file a step, a version in every line.

A file gets its name only when it is closed, flushed and synced, so a ``*.jsonl`` under ``traces/`` is always whole;
what a killed run was writing stays behind as ``*.partial``. Writing a step again, as a resumed run does, replaces
its file.

Fields of a line (all but the first four may be missing):
    schema     the version below          key, family, outcome   which task, and how it ended (null: it was not graded)
    step, sample, version, slice          where in the run
    cause, reward {"parts": {name: number}, "total": number}, success, seconds
    counted    the reward that its group saw; null: it was left out          advantage   what came of it
    plan       [{"tool", "arguments"}], the gold calls
    segments   [{"kind": "sampled" | "given", "text", "ids"?, "logprobs"?, "version"?}]
    calls      [{"tool", "arguments", "status", "seconds", "record"}];  rejections, events: as the rollout saw them
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Never, Self

from callwright.envs.trajectory import Outcome
from callwright.serving.errors import UserError

SCHEMA = 1
REQUIRED = ("key", "family", "outcome")
Trace = dict[str, Any]


class TraceWriter:
    """``with TraceWriter(run / "traces", step_name(12)) as traces: traces.write(rollout)``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.jsonl"
        self._partial = folder / f"{name}.partial"
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("w", encoding="utf-8")

    def write(self, trace: Mapping[str, Any]) -> None:
        """Append one rollout; the schema version is added here.

        Raises ValueError for a missing field, an unknown outcome or a NaN.
        """
        wrong = _wrong(trace)
        if wrong:
            raise ValueError(f"a trace {wrong}")
        # ASCII escapes: a model may emit half a surrogate pair, which has no UTF-8 form.
        line = json.dumps({"schema": SCHEMA, **trace}, allow_nan=False, separators=(",", ":"))
        self._file.write(line + "\n")

    def close(self) -> None:
        """Flush, sync and give the file its name. Closing twice does nothing."""
        if self._file.closed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # Also after an error: the record of a step that failed is what its reader needs most.
        self.close()


def step_name(step: int) -> str:
    """The file name of a training step's traces; zero-padded, so that names sort as steps do."""
    return f"step-{step:06d}"


def read_traces(run: Path, name: str | None = None) -> Iterator[Trace]:
    """Every rollout of a run folder (or of its file ``name``), in step order. Raises UserError naming file and line."""
    for path in trace_files(run, name):
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield parse_trace(line, f"{path}:{number}")


def trace_files(run: Path, name: str | None = None) -> list[Path]:
    """The whole trace files of a run folder (or its file ``name``), in step order. Raises UserError for none."""
    folder = run / "traces"
    files = sorted(folder.glob(f"{name or '*'}.jsonl"))
    if not files:
        raise UserError(f"no traces in {folder}" + (f" called {name}.jsonl" if name else "; is it a run folder?"))
    return files


def parse_trace(line: str | bytes, where: str) -> Trace:
    """The rollout on a line. Raises UserError, naming ``where``, for what is no trace of this schema."""
    try:
        trace = json.loads(line, parse_constant=_refuse)
    except ValueError as error:
        raise UserError(f"{where}: not a JSON line ({getattr(error, 'msg', error)})") from None
    if not isinstance(trace, dict) or trace.get("schema") != SCHEMA:
        found = trace.get("schema") if isinstance(trace, dict) else type(trace).__name__
        raise UserError(f"{where}: trace schema {found}, but this callwright reads {SCHEMA}")
    wrong = _wrong(trace)
    if wrong:
        raise UserError(f"{where}: a trace {wrong}")
    return trace


def _wrong(trace: Mapping[str, Any]) -> str:
    """What a trace lacks or says wrongly; empty where it is whole."""
    missing = [name for name in REQUIRED if name not in trace]
    if missing:
        return f"without {', '.join(missing)}"
    if trace["outcome"] not in (None, *Outcome):
        return f"with the outcome {trace['outcome']!r}: one of {', '.join(Outcome)}, or null"
    return ""


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no number")
