"""Trace files: whole or absent, versioned, replaced when a step is written again."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from callwright.envs.traces import SCHEMA, TraceWriter, read_traces, step_name
from callwright.serving.errors import UserError


def rollout(key: str, **more: object) -> dict[str, object]:
    return {"key": key, "family": "lookup", "outcome": "scored", **more}


def test_what_is_written_is_read_in_step_order(tmp_path: Path) -> None:
    for step in (10, 9, 100):
        with TraceWriter(tmp_path / "traces", step_name(step)) as traces:
            traces.write(rollout("a", step=step, segments=[{"kind": "sampled", "text": "\ud800 é", "ids": [1]}]))
    assert [trace["step"] for trace in read_traces(tmp_path)] == [9, 10, 100]
    assert next(read_traces(tmp_path, step_name(9)))["segments"][0]["text"] == "\ud800 é"


def test_a_step_written_again_replaces_its_file(tmp_path: Path) -> None:
    for key in ("first", "second"):
        with TraceWriter(tmp_path / "traces", "step") as traces:
            traces.write(rollout(key))
    assert [trace["key"] for trace in read_traces(tmp_path)] == ["second"]


def test_an_unclosed_file_is_not_read_and_an_error_still_closes(tmp_path: Path) -> None:
    killed = TraceWriter(tmp_path / "traces", "killed")
    killed.write(rollout("killed"))
    with contextlib.suppress(RuntimeError), TraceWriter(tmp_path / "traces", "failed") as traces:
        traces.write(rollout("failed"))
        raise RuntimeError
    assert [trace["key"] for trace in read_traces(tmp_path)] == ["failed"]
    killed.close()
    killed.close()
    assert len(list(read_traces(tmp_path))) == 2


def test_a_trace_without_its_fields_or_with_nan_is_refused(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "traces", "step") as traces:
        with pytest.raises(ValueError, match="family, outcome"):
            traces.write({"key": "a"})
        with pytest.raises(ValueError, match="'served': one of scored"):
            traces.write(rollout("a", outcome="served"))
        traces.write(rollout("a", outcome=None))
        with pytest.raises(ValueError, match="JSON"):
            traces.write(rollout("a", seconds=float("nan")))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "step.jsonl:1: not a JSON line"),
        ("3", "trace schema int"),
        (json.dumps({**rollout("a"), "schema": SCHEMA + 1}), f"reads {SCHEMA}"),
        (json.dumps({"schema": SCHEMA, "key": "a"}), "without family, outcome"),
        (json.dumps({"schema": SCHEMA, **rollout("a", outcome="won")}), "'won': one of scored"),
    ],
)
def test_a_foreign_file_is_named(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "step.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=says):
        list(read_traces(tmp_path))
