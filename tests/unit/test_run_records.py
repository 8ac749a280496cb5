"""What a run leaves for the one who reads it after a failure: whole metrics, and the commonest cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.errors import RunError
from callwright.training.faults import stop_on_faults
from callwright.training.run_folder import MetricLog

pytestmark = pytest.mark.unit


def test_a_half_line_of_metrics_is_dropped_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricLog(path)
    for step in (1, 2, 3):
        log.write(step, {"reward": 0.5})
    path.write_text(path.read_text()[:-10])  # as a full disk cuts it
    assert [row["step"] for row in MetricLog(path, keep_to=3).rows()] == [1, 2]
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_the_same_wait_in_many_lanes_is_one_cause(tmp_path: Path) -> None:
    rows = [Rollout(Task("t/0", "lookup", "?", "1"), sample) for sample in range(4)]
    for row in rows[:3]:
        wait = f"web: 15 s passed while waiting for the reply in lane ab-web-{row.sample}.0 of queue web"
        row.trajectory.finish(Outcome.INFRA_FAULT, wait)
    rows[3].trajectory.finish(Outcome.SCORED)
    stop_on_faults(rows, 0.75, tmp_path)
    with pytest.raises(
        RunError, match=r"3 of 4 .*\(3\) with: web: 15 s passed while waiting for the reply of queue web;"
    ):
        stop_on_faults(rows, 0.7, tmp_path)
