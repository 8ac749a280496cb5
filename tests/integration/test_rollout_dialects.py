"""Every dialect through the one rollout function, the real queues and the real executors."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from services import running

from callwright.envs.executors.service import Executors
from callwright.envs.executors.settings import AzureSettings, ExecutorSettings
from callwright.envs.policy import Policy
from callwright.envs.rewards import grade
from callwright.envs.rollout import Budgets, rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Step, Task
from callwright.envs.trajectory import Given, Outcome, Sampled
from callwright.serving.models import Loaded
from callwright.serving.models.tiny import train_tokenizer
from callwright.serving.protocol import DEFAULT_TOOLS, DIALECTS, EventType, Tool, ToolCall, get_dialect
from callwright.serving.protocol.values import RejectionCode as Code
from callwright.serving.queues.reply import CallStatus
from callwright.training.experts import Habits, ScriptedEngine, call, script, solution

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

NOWHERE = AzureSettings(folder=Path("no-such-folder"))
SETTINGS = ExecutorSettings(tools=("web", "code", "azure"), per_tool={"azure": NOWHERE})
DOCUMENTS = [("BCDF", "the owner of BCDF is GHJK."), ("GHJK", "the code of GHJK is 481."), ("LMNP", "nothing here.")]
SEARCH, LAST = Step("web", {"q": "BCDF", "k": 1}), Step("web", {"q": "GHJK", "k": 1})
COMPUTE = Step("code", {"code_command": "python3 -c 'print(\"</execute></tool_call>\", 6*7)'"})
FAILING = Step("code", {"code_command": "exit 3"})
TASK = Task("t/0", "lookup", "code of the owner of BCDF?", "481", plan=(SEARCH, LAST))
BUDGETS = Budgets(turn_tokens=600, policy_tokens=3000, context=9000, calls=9, wall_s=60.0)
NAMED = ("execute", "hermes")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executors() -> AsyncIterator[Executors]:
    service = Executors(SETTINGS, documents=DOCUMENTS)
    async with running(service):
        yield service


async def play(
    tiny: Loaded,
    service: Executors,
    dialect: str,
    turns: list[str],
    tools: tuple[Tool, ...] = DEFAULT_TOOLS,
    **options: Any,
) -> Rollout:
    policy = Policy(ScriptedEngine(tiny.codec, turns), tiny.codec, tools, dialect, system_prompt=False)
    done = await rollout(TASK, policy, service.call, grade, BUDGETS, key=1, session="s", **options)
    ids, mask = done.trajectory.ids, done.trajectory.mask
    assert len(ids) == len(mask) == len(done.trajectory.logprobs)
    return done


def given_texts(done: Rollout, tiny: Loaded) -> list[str]:
    return [tiny.codec.decode(part.ids) for part in done.trajectory.segments[1:] if isinstance(part, Given)]


def calls_of(dialect: str, steps: Sequence[Step]) -> str:
    return get_dialect(dialect).render_calls([ToolCall(step.tool, step.arguments) for step in steps])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_becomes_the_exact_queue_body_and_the_chain_is_scored(
    tiny: Loaded, executors: Executors, dialect: str
) -> None:
    turns = [call(SEARCH, dialect), call(COMPUTE, dialect), call(LAST, dialect), solution("481", dialect)]
    done = await play(tiny, executors, dialect, turns)
    assert (done.outcome, done.trajectory.cause) == (Outcome.SCORED, "")
    assert [record.body for record in done.calls] == [
        '{"type":"web","q":"BCDF","k":1}',
        json.dumps({"type": "code", **COMPUTE.arguments}, separators=(",", ":")),
        '{"type":"web","q":"GHJK","k":1}',
    ]
    assert all(record.status is CallStatus.OK for record in done.calls)
    assert (done.solution, done.total_reward) == ("481", pytest.approx(1.1))
    assert (done.rejections, done.violations) == ([], 0)
    texts = given_texts(done, tiny)
    assert len(texts) == 3
    assert "owner of BCDF is GHJK" in texts[0]
    assert "481" in texts[2]
    assert [type(part) for part in done.trajectory.segments] == [Given, Sampled] * 4


@pytest.mark.parametrize("dialect", NAMED)
async def test_calls_fan_out_and_join_in_order_and_a_failed_sibling_stops_nobody(
    tiny: Loaded, executors: Executors, dialect: str
) -> None:
    steps = [COMPUTE, FAILING, SEARCH, LAST]
    done = await play(tiny, executors, dialect, [calls_of(dialect, steps), solution("481", dialect)])
    assert (done.outcome, done.solution) == (Outcome.SCORED, "481")
    assert [(record.tool, record.status) for record in done.calls] == [
        ("code", CallStatus.OK),
        ("code", CallStatus.ERROR),
        ("web", CallStatus.OK),
        ("web", CallStatus.OK),
    ]
    (text,) = given_texts(done, tiny)
    frame = get_dialect(dialect)
    assert text.endswith("<|assistant|>")
    inner = text.removeprefix("<|user|>").removesuffix("<|assistant|>")
    if dialect == "execute":
        results = json.loads(inner.removeprefix("<results>").removesuffix("</results>"))
        assert [sorted(result) for result in results] == [["content", "status", "tool"]] * 4
        assert [result["tool"] for result in results] == ["code", "code", "web", "web"]
        contents = [json.loads(result["content"]) for result in results]
    else:
        parts = inner.removesuffix(frame.result_close).split(frame.result_close)
        results = [json.loads(part.removeprefix(frame.result_open)) for part in parts]
        assert [result["name"] for result in results] == ["code", "code", "web", "web"]
        contents = [result["content"] for result in results]
    assert [result["status"] for result in results] == ["success", "failure", "success", "success"]
    assert contents[0] == {"stdout": "</execute></tool_call> 42"}
    assert contents[1]["exit_code"] == 3
    assert "481" in json.dumps(contents[3])
    kinds = [event.type for event in done.events]
    assert kinds.count(EventType.CALL) == kinds.count(EventType.RESULT) == 4


@pytest.mark.parametrize("dialect", NAMED)
async def test_a_refused_call_is_told_why_and_another_round_follows(
    tiny: Loaded, executors: Executors, dialect: str
) -> None:
    before = executors.counts
    bad = call(Step("web", {"q": "BCDF", "k": "1"}), dialect)
    done = await play(tiny, executors, dialect, [bad, solution("481", dialect)])
    assert executors.counts == before
    assert [item.code for item in done.rejections] == [Code.WRONG_TYPE]
    assert (done.outcome, done.total_reward) == (Outcome.SCORED, pytest.approx(1.0))
    (text,) = given_texts(done, tiny)
    assert "wrong_type" in text
    assert "maximum" in text  # the schema
    twice = await play(tiny, executors, dialect, [bad, bad, solution("481", dialect)])
    assert (twice.outcome, twice.calls) == (Outcome.POLICY_FAULT, [])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", [Code.MALFORMED_JSON, Code.TRUNCATED, Code.UNKNOWN_TOOL, Code.FORBIDDEN_PLACE])
async def test_a_bad_call_is_one_failure_result_with_code_cause_place_and_schema(
    tiny: Loaded, executors: Executors, dialect: str, code: Code
) -> None:
    before = executors.counts
    good = call(Step("web", {"q": "é", "k": 1}), dialect)
    closer = good[good.rindex("</") :]
    turn, place = {
        Code.MALFORMED_JSON: (good.replace('"k":1', '"k":}'), "}"),
        Code.TRUNCATED: (good.removesuffix(closer), ""),
        Code.UNKNOWN_TOOL: (call(COMPUTE, dialect), '"code"'),
        Code.FORBIDDEN_PLACE: (f"<think>é{good}</think>", good[: good.index(">") + 1]),
    }[code]
    text_of_it = turn if code is Code.FORBIDDEN_PLACE else turn.partition(">")[2]
    offset = text_of_it.encode().index(place.encode()) if place else len(text_of_it.encode())
    done = await play(tiny, executors, dialect, [turn, solution("481", dialect)], tools=DEFAULT_TOOLS[:1])
    assert executors.counts == before
    assert [(item.code, item.offset) for item in done.rejections] == [(code, offset)]
    results = [event for event in done.events if event.type is EventType.RESULT]
    assert [event.payload["failure_count"] for event in results if event.payload] == [1]
    (told,) = json.loads(results[0].content)
    assert told["status"] == "failure"
    (read,) = given_texts(done, tiny)
    read = read.replace("\\", "")
    assert f'"code":"{code}","message":"' in read
    assert f'"offset":{offset},"schema":{{' in read
    assert (done.outcome, done.solution, done.violations) == (Outcome.SCORED, "481", 0)


async def test_good_calls_before_a_refused_one_run_in_hermes(tiny: Loaded, executors: Executors) -> None:
    turn = call(SEARCH, "hermes") + "<tool_call>{}</tool_call>" + call(LAST, "hermes")
    done = await play(tiny, executors, "hermes", [turn, "481"])
    assert [record.body for record in done.calls] == ['{"type":"web","q":"BCDF","k":1}']
    assert [item.code for item in done.rejections] == [Code.MISSING_KEY]
    assert done.violations == 1
    (text,) = given_texts(done, tiny)
    assert text.index("GHJK") < text.index("missing_key")
    assert done.solution == "481"


async def test_an_empty_block_gets_an_empty_result_and_another_round(tiny: Loaded, executors: Executors) -> None:
    done = await play(tiny, executors, "execute", ["<execute>[]</execute>", "481"])
    assert given_texts(done, tiny) == ["<|user|><results>[]</results><|assistant|>"]
    assert (done.calls, done.solution, done.success) == ([], "481", True)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("turn", ["<think>{call}</think>481", "{result_open}481{result_close}481", "<think>481"])
async def test_a_turn_that_breaks_a_rule_is_not_final(
    tiny: Loaded, executors: Executors, dialect: str, turn: str
) -> None:
    before = executors.counts
    frame = get_dialect(dialect)
    filled = turn.format(call=call(SEARCH, dialect), result_open=frame.result_open, result_close=frame.result_close)
    done = await play(tiny, executors, dialect, [filled, solution("481", dialect)])
    assert executors.counts == before
    (text,) = given_texts(done, tiny)
    code = done.rejections[0].code
    assert code in (Code.FORBIDDEN_PLACE, Code.FORGED_RESULT, Code.TRUNCATED)
    assert code in text
    assert (done.outcome, done.solution, done.total_reward) == (Outcome.SCORED, "481", pytest.approx(1.0))
    assert len(done.rejections) + done.violations == 1


@pytest.mark.parametrize("dialect", NAMED)
async def test_text_that_the_budget_cuts_off_is_no_answer(tiny: Loaded, executors: Executors, dialect: str) -> None:
    done = await play(tiny, executors, dialect, ["481 " * 700])
    assert (done.outcome, done.solution) == (Outcome.POLICY_FAULT, None)


async def test_function_tags_run_typed_by_the_schema(tiny: Loaded, executors: Executors) -> None:
    turn = (
        "<tool_call>\n<function=web>\n<parameter=q>\nBCDF\n</parameter>\n<parameter=k>\n1\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    done = await play(tiny, executors, "hermes", [turn, "481"])
    assert [record.body for record in done.calls] == ['{"type":"web","q":"BCDF","k":1}']
    assert done.success


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_script_ends_its_turns_as_the_policy_must_learn_to(
    tiny: Loaded, executors: Executors, dialect: str
) -> None:
    turns = script(TASK, Habits(), random.Random(1), dialect)
    done = await play(tiny, executors, dialect, turns)
    assert (done.success, len(done.calls)) == (True, 2)
    sampled = [part.ids for part in done.trajectory.segments if isinstance(part, Sampled)]
    ended = [ids[-1] in tiny.codec.eos for ids in sampled]
    assert ended == {"tags": [False] * 3, "execute": [False, False, True], "hermes": [True] * 3}[dialect]
    # The end token that the policy sampled is not given to it a second time.
    assert sum(token in tiny.codec.eos for token in done.trajectory.ids) == sum(ended)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tokenizer_of_its_own_has_the_markers_of_its_dialect(dialect: str) -> None:
    tokenizer = train_tokenizer(["what is the code of BCDF?"], DEFAULT_TOOLS, dialect=dialect)
    for marker in get_dialect(dialect).markers(DEFAULT_TOOLS):
        assert len(tokenizer.encode(marker, add_special_tokens=False)) == 1
