"""The shipped warm start is small, loads with plain transformers, and scores what its record says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from callwright.training.checkpoints import WARM_STARTS
from callwright.training.config import load_config
from callwright.training.run import evaluate

pytestmark = pytest.mark.integration

FOLDER = WARM_STARTS / "quickstart"


def test_it_is_small_and_plain() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 4 * 2**20
    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    assert model.num_parameters() < 1_000_000
    assert len(tokenizer.encode("<web>", add_special_tokens=False)) == 1


def test_it_scores_what_its_record_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = json.loads((FOLDER / "score.json").read_text(encoding="utf-8"))
    scores = evaluate(
        load_config("quickstart", ["model.path=quickstart", "eval.n_slices=0", "eval.modes=[greedy,sampled]"])
    )
    assert "closed_book" not in scores
    folder = tmp_path / "runs" / "quickstart-eval"
    assert load_config(folder).eval.n_slices == 0
    assert json.loads((folder / "environment.json").read_text())["seed"] == 0
    for mode in ("greedy", "sampled"):
        assert scores[mode]["n_scored"] == record[mode]["n_scored"]
        assert scores[mode]["success"] == pytest.approx(record[mode]["success"], abs=0.03)
        assert scores[mode]["valid_call_rate"] == pytest.approx(record[mode]["valid_call_rate"], abs=0.03)
