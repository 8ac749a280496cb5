"""The GSM8K loader on made rows, and on the public sample where its folder is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from callwright.envs.rewards.correct import is_correct
from callwright.envs.tasks.benchmarks.gsm8k import load_gsm8k

pytestmark = pytest.mark.unit


def test_rows_become_tasks(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": " How many? ", "answer": "1,200", "meta": {}},
        {"id": "b", "question": "And now?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7", "meta": {}},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    tasks = load_gsm8k(path)
    assert [(task.key, task.question, task.answer) for task in tasks] == [
        ("a", "How many?", "1200"),
        ("b", "And now?", "7"),
    ]
    assert load_gsm8k(path, limit=1) == tasks[:1]
    assert is_correct(tasks[0], "It is $1,200.00.")
    assert not is_correct(tasks[0], "1200 or 1300")


def test_public_sample() -> None:
    folder = os.environ.get("CALLWRIGHT_SAMPLES")
    if not folder:
        pytest.skip("CALLWRIGHT_SAMPLES is unset: it names the folder of the public samples")
    tasks = load_gsm8k(Path(folder) / "gsm8k_test_200.jsonl")
    assert len({task.key for task in tasks}) == 200
    for task in tasks:
        assert is_correct(task, task.answer)
        assert is_correct(task, f"The answer is {task.answer}.")
        assert not is_correct(task, f"{task.answer} or 999999")
