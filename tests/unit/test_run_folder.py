"""A run's folder says how to run it again, and an earlier run of the name is kept."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from pathlib import Path

import pytest

from callwright.training.config import load_config
from callwright.training.run_folder import VERSIONS, new_run_folder

SECRET = "planted-91c2d0"


def test_it_holds_the_config_the_versions_the_commit_and_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    config = load_config("quickstart", ["seed=7", "grpo.steps=3"])
    folder = new_run_folder(config, tmp_path)
    assert load_config(folder) == config
    found = json.loads((folder / "environment.json").read_text())
    assert found["seed"] == 7
    assert set(found["versions"]) == set(VERSIONS)
    assert found["versions"]["numpy"] == importlib.metadata.version("numpy")
    assert found["machine"]["cores"] == os.cpu_count()
    if not (Path(__file__).parents[2] / ".git").exists():
        pytest.skip("no git checkout, so no commit")
    assert re.fullmatch(r"[0-9a-f]{40}", found["git"]["commit"])
    assert found["git"]["dirty"] in (True, False)
    assert all(SECRET not in path.read_text() for path in folder.iterdir())


def test_an_earlier_run_of_the_name_stays(tmp_path: Path) -> None:
    config = load_config("quickstart")
    for text in ("first", "second", "third"):
        (new_run_folder(config, tmp_path) / "mark").write_text(text)
    marks = {path.name: (path / "mark").read_text() for path in tmp_path.iterdir()}
    assert marks == {"quickstart": "third", "quickstart-old-1": "first", "quickstart-old-2": "second"}
