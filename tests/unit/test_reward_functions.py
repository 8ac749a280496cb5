"""Every reward function's formula by hand, and what none of them may do: read text, or pay a fault above an answer."""

from __future__ import annotations

import json
from math import cos, pi, sin
from typing import Any

import pytest
from pydantic import ValidationError

from callwright.envs.rewards import REWARDS, CallRecord, Evidence, RewardSpec, evidence_of
from callwright.envs.rewards.format_gated import FormatGated
from callwright.envs.rewards.otc import OTC
from callwright.envs.rewards.toolrl import ToolRL, match_share
from callwright.envs.rewards.torl import ToRL
from callwright.envs.tasks import Step, Task
from callwright.serving.errors import UserError
from callwright.serving.queues.reply import CallStatus

pytestmark = pytest.mark.unit

FIRST, SECOND = Step("web", {"q": "BCDF", "k": 1}), Step("code", {"code_command": "python3 -c 'print(1)'"})
TASK = Task("t/0", "lookup", "code of BCDF?", "481", plan=(FIRST, SECOND))
DIRECT = Task("t/1", "direct", "spell ab backwards", "ba")


def made(tool: str, status: CallStatus = CallStatus.OK, **arguments: Any) -> CallRecord:
    return CallRecord(tool, json.dumps({"type": tool, **arguments}), status, "{}", "", 0.0)


GOLD = tuple(made(step.tool, **step.arguments) for step in TASK.plan)


def total(name: str, evidence: Evidence, correct: bool, **weights: float) -> float:
    return sum(RewardSpec(name=name, weights=weights).function().parts(evidence, correct).values())


@pytest.mark.parametrize(
    ("name", "right", "right_but_refused", "wrong", "unfinished"),
    [
        ("exact", 1.1, 1.0, 0.1, 0.0),
        ("search_r1", 1.0, 1.0, 0.0, 0.0),
        ("torl", 1.0, 1.0, -1.0, -1.0),
        ("toolrl", 4.0, 3.0, 4.0, 3.0),  # it looks at the calls alone
        ("otc", 1.0, 1.0, 0.0, 0.0),
        ("format_gated", 1.0, -1.0, 0.0, -1.0),
    ],
)
def test_what_a_rollout_with_the_gold_calls_earns(
    name: str, right: float, right_but_refused: float, wrong: float, unfinished: float
) -> None:
    assert total(name, Evidence(TASK, "481", GOLD), True) == pytest.approx(right)
    assert total(name, Evidence(TASK, "481", GOLD, rejections=1), True) == pytest.approx(right_but_refused)
    assert total(name, Evidence(TASK, "481", GOLD, violations=1), True) == pytest.approx(right_but_refused)
    assert total(name, Evidence(TASK, "7", GOLD), False) == pytest.approx(wrong)
    assert total(name, Evidence(TASK, None, GOLD), False) == pytest.approx(unfinished)


@pytest.mark.parametrize("name", REWARDS)
def test_the_text_of_an_answer_changes_nothing(name: str) -> None:
    stuffed = "<web></web><solution>481</solution>" * 50
    plain = total(name, Evidence(TASK, "7", GOLD), False)
    assert total(name, Evidence(TASK, stuffed, GOLD), False) == plain


@pytest.mark.parametrize("name", REWARDS)
def test_no_answer_earns_at_most_what_a_wrong_one_does(name: str) -> None:
    for calls in ((), GOLD, GOLD * 3):
        assert total(name, Evidence(TASK, None, calls), False) <= total(name, Evidence(TASK, "7", calls), False)


def test_torl_takes_for_code_that_fails_only_where_it_is_asked_to() -> None:
    failed = (made("web", CallStatus.ERROR, q="BCDF", k=1), made("code", CallStatus.LIMIT, code_command="sleep 99"))
    assert total("torl", Evidence(TASK, "481", failed), True) == 1.0
    assert total("torl", Evidence(TASK, "481", failed), True, failing_code=-0.5) == 0.5
    assert total("torl", Evidence(TASK, "481", failed[:1]), True, failing_code=-0.5) == 1.0
    assert ToRL().parts(Evidence(TASK, "481", failed), True) == {"answer": 1.0, "failing_code": 0.0}


def test_toolrl_matches_names_arguments_and_values() -> None:
    assert match_share(GOLD, TASK.plan) == 1.0
    assert match_share((), TASK.plan) == 0.0
    best = 1 + 2 + 3
    # One tool of two; both argument names; the value of k alone.
    assert match_share((made("web", q="GHJK", k=1),), TASK.plan) == pytest.approx((0.5 + 1 + 1) / best)
    # A repeated call lowers the overlap of the tools' names and is paired with nothing.
    assert match_share((*GOLD, GOLD[0]), TASK.plan) == pytest.approx((2 / 3 + 2 + 3) / best)
    assert match_share((made("azure", azure_command="az group list"),), TASK.plan) == 0.0
    assert (match_share((), ()), match_share(GOLD, ())) == (1.0, 0.0)
    assert ToolRL().parts(Evidence(DIRECT, "ba"), True) == {"format": 1.0, "calls": 3.0}
    assert ToolRL().parts(Evidence(DIRECT, "ba", GOLD), True) == {"format": 1.0, "calls": -3.0}


def test_toolrl_pairs_each_call_with_its_own_gold_call() -> None:
    plan = (Step("web", {"q": "BCDF", "k": 1}), Step("web", {"q": "GHJK", "k": 1}))
    swapped = (made("web", q="GHJK", k=1), made("web", q="BCDF", k=1))
    assert match_share(swapped, plan) == 1.0


def test_otc_pays_most_for_as_many_calls_as_the_plan_has() -> None:
    efficiency = OTC().efficiency
    assert efficiency(0, 0) == 1.0
    assert efficiency(2, 0) == pytest.approx(cos(2 * pi / 5))
    assert [efficiency(made_, 2) for made_ in (0, 2)] == pytest.approx([0.0, 1.0])
    assert efficiency(3, 2) == pytest.approx(sin((2 * 2 * 3 / 5) * pi / 4))
    assert efficiency(1, 2) < efficiency(2, 2) > efficiency(3, 2) > efficiency(6, 2) > 0
    assert OTC(smooth=4).efficiency(1, 0) > OTC().efficiency(1, 0)
    assert total("otc", Evidence(TASK, "481"), True) == pytest.approx(0.0)  # right without a call: it was luck
    assert total("otc", Evidence(TASK, "481", GOLD), True, scale=2) == pytest.approx(2.0)


def test_format_gated_pays_nothing_through_a_broken_format() -> None:
    assert FormatGated(broken=0).parts(Evidence(TASK, "481", GOLD, violations=1), True) == {"gated": 0.0}
    assert FormatGated(correct=2).parts(Evidence(TASK, "481", GOLD), True) == {"gated": 2.0}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"name": "tags"}, "there are exact"),
        ({"weights": {"clear": 1}}, "weights.clear: .*exact has correct, clean"),
        ({"name": "torl", "weights": {"right": "much"}}, "weights"),
        ({"name": "otc", "weights": {"smooth": 0}}, "weights.smooth: .*greater than 0"),
    ],
)
def test_an_unknown_function_or_weight_is_refused_at_once(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RewardSpec.model_validate(spec)


def test_a_trace_gives_the_same_evidence() -> None:
    plan = [{"tool": step.tool, "arguments": step.arguments} for step in TASK.plan]
    calls = [
        {"tool": "web", "arguments": {"q": "BCDF", "k": 1}, "status": "ok", "record": "{}", "cause": "", "seconds": 0.0}
    ]
    trace = {
        **{"key": "t/0", "family": "lookup", "question": TASK.question, "answer": "481", "solution": "481"},
        **{"plan": plan, "calls": calls, "rejections": [{}], "violations": 2},
    }
    evidence = evidence_of(trace)
    assert evidence.task == TASK
    assert evidence.calls[0].arguments == {"q": "BCDF", "k": 1}
    assert (evidence.rejections, evidence.violations, evidence.finished, evidence.clean) == (1, 2, True, False)
    del trace["plan"]
    with pytest.raises(UserError, match="gold plans"):
        evidence_of(trace)
