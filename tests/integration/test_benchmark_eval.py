"""``callwright eval CHECKPOINT benchmark=...`` with the shipped model: reports, resumption, reruns and the check."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callwright.envs.trajectory import Outcome
from callwright.scripts import cli
from callwright.training.benchmark_run import run_benchmarks
from callwright.training.config import load_config
from callwright.training.session import open_session

pytestmark = pytest.mark.integration

WORDS = ["model.path=quickstart", "eval.benchmark=[direct]", "eval.limit=12", "deterministic=true"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def evaluate(runs: Path, *words: str) -> dict[str, Any]:
    return run_benchmarks(load_config("quickstart", [*WORDS, *words]), runs)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_report_and_its_files(runs: Path) -> None:
    code = cli.run(["eval", "quickstart", "benchmark=direct,absent", "limit=6", "samples=2", "--json", "out.json"])
    assert code == 0
    report = json.loads(Path("out.json").read_text())
    assert list(report["benchmarks"]) == ["direct", "absent"]
    assert report["n_total"] == report["n_scored"] == 12
    assert set(report["pass_at_k"]) == {"1", "2"}
    assert set(report["maj_at_k"]) == {"2"}
    assert report["closed_book"]["n_scored"] == 6
    assert report["sampling"]["samples"] == 2
    assert report["versions"]["torch"]
    folder = Path(report["folder"])
    assert json.loads((folder / "report.json").read_text()) == report["benchmarks"]["direct"]
    assert "direct: quickstart" in (folder / "report.md").read_text()
    board = lines(runs / "leaderboard.jsonl")
    assert [line["benchmark"] for line in board] == ["direct", "absent"]
    assert [line["metric"] for line in board] == ["accuracy", "accuracy"]
    assert (board[0]["infra_fault_rate"], board[0]["flip_rate"]) == (0.0, None)
    assert cli.run(["trace", str(folder), "--limit", "1"]) == 0


def test_a_benchmark_that_fails_does_not_take_the_others_along(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["eval", "quickstart", "benchmark=azure,direct", "limit=2"]) == 1  # no Azure CLI in this folder
    assert [line["benchmark"] for line in lines(runs / "leaderboard.jsonl")] == ["direct"]
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("callwright: 1 of 2 benchmarks have no score, azure because: 2 of 2 rollouts failed")


def test_an_interrupted_run_keeps_its_rows(runs: Path) -> None:
    first = evaluate(runs, "deterministic=false")
    assert first["rerun"] is None
    assert first["success"] > 0.5
    folder = runs.parent / first["folder"]
    done = folder / "traces" / "tools.jsonl"
    rows = lines(done)
    # As a kill leaves it: some whole lines, a fault of ours among them, and a torn one.
    rows[0]["seconds"] = 12345.0
    rows[1] |= {"outcome": "infra_fault", "seconds": 54321.0}
    journal = "".join(json.dumps(row) + "\n" for row in rows[:5]) + json.dumps(rows[5])[:40]
    (folder / "tools.journal").write_text(journal)
    done.unlink()
    again = evaluate(runs, "deterministic=false")
    assert again["success"] == first["success"]
    assert again["rerun"] is None  # the rest of a run is no second one
    resumed = lines(done)
    assert [row["key"] for row in resumed] == [row["key"] for row in rows]
    assert resumed[0]["seconds"] == 12345.0
    assert resumed[1]["seconds"] != 54321.0
    assert not (folder / "tools.journal").exists()


def test_a_deterministic_rerun_is_bit_equal_also_after_an_interruption(runs: Path) -> None:
    first = evaluate(runs, "eval.samples=2")
    folder = runs.parent / first["folder"]
    kept = (folder / "traces" / "tools.jsonl").read_text().splitlines()
    (folder / "tools.journal").write_text("".join(f"{line}\n" for line in kept[:7]))
    again = evaluate(runs, "eval.samples=2")
    assert again["folder"] == first["folder"]
    assert again["rerun"] == {"flip_rate": 0.0, "bit_equal": True}
    other = evaluate(runs, "eval.samples=2", "seed=7")
    assert other["folder"] != first["folder"]


def test_a_session_plays_single_tasks_for_others_from_several_threads(runs: Path) -> None:
    with open_session(load_config("quickstart", WORDS)) as session, ThreadPoolExecutor(4) as pool:
        session.adopt_configured()
        tasks = session.tasks.evaluation("new_seeds", 8)
        played = list(pool.map(session.play, tasks))
        assert [rollout.task for rollout in played] == tasks
        assert {rollout.outcome for rollout in played} <= {Outcome.SCORED, Outcome.POLICY_FAULT}
        assert any(rollout.success for rollout in played)


def test_the_check_names_the_rows_that_fail(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "good", "question": "q", "answer": "12"}, {"id": "hedged", "question": "q", "answer": "12 or 13"}]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli.run(["eval", "--check", "benchmark=gsm8k", "rows=rows.jsonl", "--json", "-"]) == 1
    said = capsys.readouterr().out
    assert "gsm8k: 2 rows, 1 fail\n  hedged: the gold answer scores 0: '12 or 13'" in said
    assert '"good' not in said
    assert cli.run(["eval", "--check", "benchmark=gsm8k", "rows=rows.jsonl", "limit=1"]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval", "benchmark=gsm8k"], "name a CHECKPOINT"),
        (["eval", "--check"], "benchmark=gsm8k"),
        (["eval", "--check", "benchmark=gsm9k"], "did you mean gsm8k?"),
        (["eval", "quickstart", "benchmark=nq", "rows=missing"], "no file missing"),
    ],
)
def test_mistakes_are_one_line(runs: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
