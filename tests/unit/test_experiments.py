"""Experiments without a model: cells, probes that find a hack, rank agreement, re-scoring that resumes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callwright.envs.rewards import REWARDS, Evidence, RewardFunction, RewardSpec
from callwright.envs.traces import TraceWriter, step_name
from callwright.scripts import cli
from callwright.serving.engines.text_codec import TextCodec
from callwright.serving.errors import UserError
from callwright.serving.queues.faults import FaultSettings
from callwright.training.config import dump_config, load_config
from callwright.training.experiments import cells as cells_module
from callwright.training.experiments.agreement import kendall, spearman
from callwright.training.experiments.probes import play, score_probes
from callwright.training.experiments.spec import cells_of, load_experiment
from callwright.training.trace_records import trace_record

pytestmark = pytest.mark.unit

GRID = """
name: tiny
rescore: runs/recorded
seeds: [0, 1]
grid:
  reward:
    exact: {reward: {name: exact}}
    harsh: {reward: {name: torl, weights: {wrong: -2}}}
  late:
    drop: {grpo.late: drop, grpo.num_generations: 3, grpo.faults: {drop: 0.4}}
    zero: {grpo.late: zero, grpo.num_generations: 3, grpo.faults: {drop: 0.4}}
"""


class PerCall(RewardFunction):
    """Pays for every call, right or wrong."""

    def parts(self, evidence: Evidence, correct: bool) -> Mapping[str, float]:
        return {"calls": float(len(evidence.calls)), "correct": float(correct)}


def test_probes_name_a_function_that_pays_hacks_and_no_strict_one() -> None:
    functions = {name: RewardSpec(name=name).function() for name in REWARDS}
    found = score_probes({**functions, "per_call": PerCall()})
    assert "probe/one: one call over and over" in found["per_call"]["pays"]
    assert "probe/two: gold calls, then a guess" in found["toolrl"]["pays"]
    assert {name for name, one in found.items() if one["pays"]} == {"per_call", "toolrl"}


def test_scripts_are_what_their_kind_says() -> None:
    played = asyncio.run(play())
    for _, probe, done in played:
        assert done.success is (probe.kind == "success"), probe.name
        if probe.kind == "failure":
            assert done.calls
            assert done.evidence.clean
    violations = {probe.name for _, probe, done in played if done.violations or done.rejections}
    assert {"forged result", "tags in thoughts"} <= violations


def test_rank_agreement_by_hand() -> None:
    assert kendall([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert kendall([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / (2 * 3) ** 0.5)
    assert spearman([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
    assert spearman([1, 1, 2], [3, 3, 1]) == pytest.approx(-1)
    assert kendall([1, 1], [1, 2]) is None
    assert spearman([1, 1], [1, 2]) is None


@pytest.mark.parametrize("name", ["rewards", "late"])
def test_shipped_experiments_resolve(name: str) -> None:
    experiment, path = load_experiment(name)
    cells = cells_of(experiment, path)
    assert experiment.name == name
    assert len({cell.name for cell in cells}) == len(cells) == 18
    assert all(cell.config.grpo.steps == 40 for cell in cells)


@pytest.mark.parametrize(
    ("keys", "logged"),
    [
        ("{}", FaultSettings()),
        ("{faults: {drop: 0.1}}", FaultSettings(drop=0.1)),
        ("{asynchronous: {}}", None),
    ],
)
def test_every_trained_cell_logs_its_reward_queue_where_that_can_be(
    keys: str, logged: FaultSettings | None, tmp_path: Path
) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(f"name: e\nconfig: {{extends: quickstart, grpo: {keys}}}\n")
    (cell,) = cells_of(*load_experiment(str(path)))
    assert cell.config.grpo.faults == logged


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\nseed: [1]", "seed"),
        ("name: x\ngrid: {a: {b: {grpo.stepz: 1}}}", "did you mean grpo.steps"),
        ("name: x\nrescore: runs/recorded\ngrid: {a: {b: {grpo.steps: 1}}}", "cannot change"),
        ("name: x\ngrid: {a: {b: {reward: {name: tags}}}}", "there are exact"),
    ],
)
def test_a_wrong_experiment_is_one_line(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(text)
    assert cli.run(["experiment", "x.yaml"]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    with pytest.raises(UserError, match="shipped ones are late, rewards"):
        load_experiment("missing")


def record(folder: Path) -> None:
    """Two steps of real rollouts, as training leaves them."""
    codec, run = TextCodec(), folder / "runs" / "recorded"
    for step in range(2):
        with TraceWriter(run / "traces", step_name(step)) as traces:
            for sample, (_, _, done) in enumerate(asyncio.run(play())):
                traces.write({**trace_record(done, codec, step=step), "sample": sample})
    (run / "config.yaml").write_text(dump_config(load_config("quickstart")))


@pytest.mark.timeout(120)
def test_rescoring_is_interrupted_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path)
    Path("tiny.yaml").write_text(GRID)
    done: list[str] = []
    real = cells_module.rescore

    def stops_at_the_third(config: Any, run: Path) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(config.reward.label)
        return real(config, run)

    monkeypatch.setattr(cells_module, "rescore", stops_at_the_third)
    assert cli.run(["experiment", "tiny.yaml"]) == 130
    folder = tmp_path / "runs" / "tiny"
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/result.json")}
    assert 1 <= len(finished) <= 2
    torn = next(path for path in folder.glob("cells/*") if not (path / "result.json").exists())
    (torn / "left behind").write_text("half")

    monkeypatch.setattr(cells_module, "rescore", real)
    assert cli.run(["experiment", "tiny.yaml", "--json", "out.json"]) == 0
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items())
    assert not (torn / "left behind").exists()
    report = json.loads((folder / "report.json").read_text())
    assert json.loads(Path("out.json").read_text()) == report
    assert set(report["arms"]) == {"exact.drop", "exact.zero", "harsh.drop", "harsh.zero"}
    for arm, values in report["arms"].items():
        assert values["outcomes"]["infra_fault"] > 0
        assert (values["poisoned"] == 0) == arm.endswith("drop")
        assert 0 < values["success_mean"] < 1
    assert "torl wrong=-2" in report["probes"]
    assert all(pair["kendall"] is None or -1 <= pair["kendall"] <= 1 for pair in report["agreement"]["pairs"])
    assert "Poisoned samples: none outside" in (folder / "report.md").read_text()

    Path("tiny.yaml").write_text(GRID.replace("[0, 1]", "[0, 2]"))
    assert cli.run(["experiment", "tiny.yaml"]) == 2
