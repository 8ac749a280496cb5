"""Alarms over rows of metrics: each begins at its threshold, is told once, and is the same after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from callwright.envs.budgets import Budgets
from callwright.envs.rewards import Reward
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Given, Outcome, Sampled
from callwright.serving.errors import RunError
from callwright.training.alarms import RULES, Alarms
from callwright.training.checkpoints import MARKER, best, complete, mark_best, prune
from callwright.training.config import Config, ConfigError, load_config
from callwright.training.sections.alarms import AlarmName
from callwright.training.signs import repeated_ngrams, signs
from callwright.training.watch import Watch

WELL = {
    "entropy": 0.3,
    "budget_spent": 0.3,
    "repeated_ngrams": 0.01,
    "valid_call_rate": 0.99,
    "calls_per_rollout": 1.5,
    "reward_without_answer": 0.0,
    "zero_variance_share": 0.4,
    "success": 0.5,
}


def config(*overrides: str) -> Config:
    return load_config("quickstart", overrides)


def rows(*changes: dict[str, float]) -> list[dict[str, float]]:
    return [{**WELL, **change} for change in changes]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("entropy_low", {"entropy": 0.001}),
        ("entropy_high", {"entropy": 2.5}),
        ("length", {"budget_spent": 0.9}),
        ("repeated_ngrams", {"repeated_ngrams": 0.5}),
        ("valid_call_rate", {"valid_call_rate": 0.3}),
        ("tool_rate", {"calls_per_rollout": 0.1}),
        ("reward_without_answer", {"reward_without_answer": 0.4}),
        ("zero_variance_share", {"zero_variance_share": 1.0}),
    ],
)
def test_each_alarm_begins_at_its_threshold_alone_and_null_is_silent(name: str, change: dict[str, float]) -> None:
    alarms, silent = Alarms(config()), Alarms(config(f"alarms.{name}=null"))
    told = []
    for row in rows(*[{}] * 3, *[change] * 3):
        told.append([alarm.name for alarm in alarms.look(row)])
        assert silent.look(row) == []
    assert [names for names in told if names] == [[name]]
    assert told[:3] == [[]] * 3


def test_every_name_has_one_rule_and_one_threshold() -> None:
    assert [rule.name for rule in RULES] == list(get_args(AlarmName))
    assert set(get_args(AlarmName)) == set(type(config().alarms).model_fields) - {"window", "stop"}


def test_an_alarm_is_told_once_until_it_has_ended() -> None:
    alarms = Alarms(config("alarms.window=1"))
    bad = {"valid_call_rate": 0.1}
    told = [bool(alarms.look(row)) for row in rows({}, bad, bad, {}, {}, bad)]
    assert told == [False, True, False, False, False, True]


def test_one_bad_batch_is_no_alarm_and_an_absent_number_is_none() -> None:
    alarms = Alarms(config())
    assert not any(alarms.look(row) for row in rows({}, {}, {"valid_call_rate": 0.0}, {}))
    assert Alarms(config("alarms.window=1")).look({"success": 0.0}) == []


def test_a_resumed_run_goes_on_where_it_was() -> None:
    told = rows({}, {"entropy": 3.0}, {"entropy": 3.0}, {"entropy": 3.0}, {"entropy": 3.0})
    whole = Alarms(config())
    at_once = [[alarm.name for alarm in whole.look(row)] for row in told]
    for cut in range(len(told)):
        resumed = Alarms(config(), told[:cut])
        assert [[alarm.name for alarm in resumed.look(row)] for row in told[cut:]] == at_once[cut:]


def test_a_stop_on_an_alarm_that_is_off_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the alarm length is off"):
        config("alarms.length=null", "alarms.stop=[length]")
    with pytest.raises(ConfigError, match=r"'entropy_low'"):
        config("alarms.stop=[entropy]")


def rollout(solution: str | None, *turns: tuple[int, ...]) -> Rollout:
    row = Rollout(Task("k", "lookup", "q", "a"), 0, solution=solution, reward=Reward({"correct": 1.0}, True))
    row.trajectory.append(Given((1, 2, 1, 2, 1, 2, 1, 2)))  # what was given is not the policy's repetition
    for turn in turns:
        row.trajectory.append(Sampled(turn, (0.0,) * len(turn)))
    row.trajectory.finish(Outcome.SCORED)
    return row


def test_the_signs_of_a_batch() -> None:
    made = [rollout("a", (1, 2, 3, 4, 5)), rollout(None, (7,) * 8), rollout(" ", (1, 2, 3, 4, 5)), rollout("a")]
    budgets = Budgets(turn_tokens=10, policy_tokens=40)
    found = signs(made, [1.0, 0.5, 0.5, None], budgets)
    assert found["answered_share"] == pytest.approx(1 / 3)
    assert found["reward_without_answer"] == pytest.approx(0.5)
    assert found["repeated_ngrams"] == pytest.approx(1 - (2 + 1 + 2) / (2 + 5 + 2))
    assert found["budget_spent"] == pytest.approx((0.5 + 0.8 + 0.5 + 0) / 4)
    assert signs([rollout("a", *[(1,) * 8] * 5)], [1.0], budgets)["budget_spent"] == 1.0
    assert signs([], [], budgets) == dict.fromkeys(found, 0.0)
    assert signs(made[:1], [-1.0], budgets)["reward_without_answer"] == 0.0


def test_a_call_that_a_later_turn_makes_again_is_no_repetition() -> None:
    assert repeated_ngrams([(1, 2, 3, 4, 5)] * 3) == 0.0
    assert repeated_ngrams([(1, 2, 3)]) == 0.0


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / "checkpoints" / f"step-{step}"
    path.mkdir(parents=True)
    (path / MARKER).touch()
    return path


def test_the_checkpoint_whose_rollouts_succeeded_most_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(config("alarms.stop=[valid_call_rate]", "alarms.window=1"), tmp_path, [])
    for step, success in enumerate((0.1, 0.2, 0.7, 0.3, 0.2), 1):  # of the batch sampled by step-(N-1)
        watch.marked(step, {**WELL, "success": success})
        watch.stop(step)
        checkpoint(tmp_path, step)
        prune(tmp_path / "checkpoints", 1)
    assert [step for step, _ in complete(tmp_path / "checkpoints")] == [2, 5]
    row = watch.marked(6, {**WELL, "success": 0.0, "valid_call_rate": 0.0})
    assert (row["alarm/valid_call_rate"], row["stop/valid_call_rate"]) == (0.0, 0.0)
    assert capsys.readouterr().err.startswith("alarm valid_call_rate at step 6: valid_call_rate 0, ")
    with pytest.raises(RunError, match=r"ended the run at step 6: .*step-2 \(success 0\.700"):
        watch.stop(6)
    again = Watch(config("alarms.stop=[valid_call_rate]"), tmp_path, [])  # a resumed run knows the best one
    again.marked(6, {**WELL, "success": 0.6})
    found = best(tmp_path / "checkpoints")
    assert found is not None
    assert found[0].name == "step-2"


def test_without_a_stop_nothing_is_marked_and_the_run_goes_on(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    watch = Watch(config("alarms.window=1"), tmp_path, [])
    assert "alarm/entropy_high" in watch.marked(2, {**WELL, "entropy": 5.0})
    watch.stop(2)
    assert best(tmp_path / "checkpoints") is None


def test_one_checkpoint_is_the_best(tmp_path: Path) -> None:
    first, second = checkpoint(tmp_path, 1), checkpoint(tmp_path, 2)
    mark_best(first, 0.25)
    mark_best(second, 1 / 3)
    assert best(tmp_path / "checkpoints") == (second, 1 / 3)
    assert not (first / "BEST").exists()
    assert json.loads((second / "BEST").read_text()) == 1 / 3
