"""SQuAD's comparison, the one answer of a mathematical solution, and the figures of a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from callwright.envs.benchmark_markdown import markdown
from callwright.envs.benchmark_report import counted, rerun, summarise
from callwright.envs.rewards.math_answer import one_answer
from callwright.envs.rewards.qa import squad_exact, squad_f1, squad_normalise
from callwright.envs.statistics import mcnemar, mean, most_voted, proportion
from callwright.envs.tasks.task import Functions, Task

pytestmark = pytest.mark.unit


def test_squad_normalisation() -> None:
    assert squad_normalise(" The  Beatles, (an) English band! ") == "beatles english band"
    assert squad_exact("the Eiffel Tower.", ("Big Ben", "Eiffel tower"))
    assert not squad_exact("Eiffel", ("Eiffel tower",))
    assert not squad_exact("the", ("a",))
    assert not squad_exact("", ("",))


def test_f1_is_the_best_over_the_aliases() -> None:
    assert squad_f1("Ada Lovelace", ("Ada King", "Lovelace Ada")) == 1.0
    assert squad_f1("Ada Lovelace", ("Ada King",)) == pytest.approx(0.5)
    assert squad_f1("Ada Ada", ("Ada",)) == pytest.approx(2 / 3)
    assert squad_f1("", ("Ada",)) == 0.0


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"So \boxed{12}, that is \boxed{12}.", "12"),
        ("The answer is $12$.", "12"),
        ("12.", "12"),
        ("x = 12", "x = 12"),
        ("6+6=12", "6+6=12"),
        (r"\boxed{12} or \boxed{13}", None),
        (r"\boxed{12}, \boxed{13}", None),
        ("$12$ and $13$", None),
        ("13 or 12", None),
        ("13 = 12", None),
        ("x = 13 = 12", None),
        (r"\boxed{}", None),
        ("1" * 3000, None),
    ],
)
def test_one_answer(solution: str, answer: str | None) -> None:
    assert one_answer(solution) == answer


def test_statistics() -> None:
    assert proportion(8, 10).interval == pytest.approx((0.490, 0.943), abs=1e-3)
    estimate = mean([0.0, 1.0] * 50)
    assert estimate.value == 0.5
    assert estimate.interval == pytest.approx((0.4, 0.6), abs=0.02)
    assert estimate == mean([0.0, 1.0] * 50)
    assert mean([0.25] * 4).interval == (0.25, 0.25)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(0.0625)
    assert mcnemar(3, 4) == 1.0
    assert most_voted(["a", "b", "b"]) == 1
    assert most_voted(["a", "b"]) == 0


def trace(key: str, solution: str | None, right: bool, sample: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        **{"key": key, "family": "nq", "sample": sample, "outcome": "scored", "solution": solution, "success": right},
        **{"seconds": 1.0, "calls": [], "rejections": [], "violations": 0},
        "segments": [{"kind": "given", "ids": [1, 2]}, {"kind": "sampled", "ids": [3, 4, 5]}],
        **changes,
    }


TASKS = {key: Task(key, "nq", "?", "Ada Lovelace") for key in "abc"}


def test_a_report_counts_faults_of_ours_apart() -> None:
    rows = [
        trace("a", "Ada Lovelace", True, calls=[{}, {}], rejections=[{"code": "invalid_json"}]),
        trace("b", None, False, outcome="policy_fault"),
        trace("c", None, False, outcome="infra_fault"),
    ]
    report = summarise(rows, TASKS, "exact_match", ("f1",))
    assert (report["success"], report["n_scored"], report["n_total"]) == (0.5, 2, 3)
    assert report["metric"]["exact_match"]["method"] == "wilson"
    assert report["metric"]["f1"]["value"] == 0.5
    assert report["valid_call_rate"] == pytest.approx(2 / 3)
    assert report["rejections"] == {"invalid_json": 1}
    assert (report["calls_per_rollout"], report["tokens_per_rollout"]) == (1.0, 3.0)
    assert report["infra_fault_rate"] == pytest.approx(1 / 3)
    assert report["pass_at_k"] == report["maj_at_k"] == {}


def test_of_a_text_alone_the_tokens_are_unknown() -> None:
    rows = [trace("a", "x", True, segments=[{"kind": "sampled", "text": "x"}])]
    report = summarise(rows, TASKS, "exact_match", ())
    assert report["tokens_per_rollout"] is None
    assert rerun(rows, rows) == {"flip_rate": 0.0, "bit_equal": False}


def test_a_rollout_that_nobody_graded_does_not_count() -> None:
    rows = [trace("a", "x", True), trace("b", "x", False, outcome=None)]
    assert list(counted(rows)) == ["a"]


def test_several_samples_give_pass_and_majority() -> None:
    rows = [trace("a", said, said == "x", n) for n, said in enumerate(["x", "y", "X ", "z"])]
    rows += [trace("b", said, said == "x", n) for n, said in enumerate(["y", "y", "x", "y"])]
    report = summarise(rows, TASKS, "exact_match", ())
    assert report["success"] == pytest.approx((1 / 4 + 1 / 4) / 2)
    assert report["metric"]["exact_match"]["method"] == "bootstrap"
    assert report["pass_at_k"] == {"1": pytest.approx(0.25), "2": pytest.approx(0.5), "4": 1.0}
    assert report["maj_at_k"] == {"4": 0.5}
    # Where calls are judged, equal words say nothing.
    calls = {key: replace(task, functions=Functions(())) for key, task in TASKS.items()}
    assert summarise(rows, calls, "accuracy", ())["maj_at_k"] == {}


def test_a_rerun_says_what_flipped() -> None:
    first = [trace("a", "x", True), trace("b", "y", False)]
    assert rerun(first, first) == {"flip_rate": 0.0, "bit_equal": True}
    other = [first[0], trace("b", "x", True, segments=[{"kind": "sampled", "ids": [9]}])]
    assert rerun(first, other) == {"flip_rate": 0.5, "bit_equal": False}


def test_a_report_for_people_has_every_figure() -> None:
    report = {
        **{"benchmark": "nq", "checkpoint": "x", "closed_book": {"success": 0.1, "interval": [0, 1], "method": "w"}},
        **summarise([trace("a", "x", True), trace("b", "x", False)], TASKS, "exact_match", ("f1",)),
        **{"left_out": 3, "rerun": {"flip_rate": 0.25, "bit_equal": False}, "sampling": {"temperature": 0.0}},
        **{"versions": {"torch": "2"}, "source": "s", "licence": "MIT"},
    }
    said = markdown(report)
    for part in (
        "exact match | 0.500",
        "f1",
        "closed book",
        "2 / 2",
        "left out | 3",
        "0.250 flipped",
        "torch 2",
        "MIT",
    ):
        assert part in said
