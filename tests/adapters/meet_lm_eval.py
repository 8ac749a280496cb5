"""lm-eval asks our rollout, on a task of its own kind; run in .adapters by test_adapters.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lm_eval
import pytest
from lm_eval.tasks import TaskManager
from scripted import gold, scripted, suite

from callwright.envs.adapters.lm_eval_model import RolloutLM
from callwright.serving.errors import UserError

folder = Path(sys.argv[1])
family = suite()
tasks = family.evaluation("new_seeds", 4)
rows = [{"question": task.question, "answer": task.answer} for task in tasks]
rows[3]["answer"] = "0"  # one that lm-eval must find wrong
(folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
config = {
    "task": "own_lookup",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["\n"], "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
with scripted(family, {task.question: gold(task) for task in tasks}) as player:
    model = RolloutLM(player, rollouts=2)
    results = lm_eval.simple_evaluate(
        model=model, tasks=[config], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0
    )
    assert results is not None
    score = results["results"]["own_lookup"]["exact_match,none"]
    assert score == 0.75, results["results"]
    with pytest.raises(UserError, match="generate_until"):
        model.loglikelihood([])
print("lm-eval: 3 of 4")
