"""Each event where it occurs: the loop's own in a rollout, and what a person does to a chat."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Iterable

import pytest

from callwright.envs.budgets import Budgets
from callwright.envs.executors.executor import ExecutorUnavailable
from callwright.envs.policy import Policy
from callwright.envs.rewards import Reward
from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.serving.engines.engine import Completion, EngineError, Request
from callwright.serving.errors import CallwrightError
from callwright.serving.models import Loaded
from callwright.serving.protocol import DEFAULT_TOOLS, Event, EventType, ToolCall
from callwright.serving.queues.reply import CallStatus, Reply, make_record
from callwright.training.chat import chat
from callwright.training.config import load_config
from callwright.training.experts import ScriptedEngine

pytestmark = pytest.mark.integration

TASK = Task("t/0", "lookup", "the code?", "7")
CALL = '<web>{"type":"web","q":"A","k":1}</web>'


class Broken:
    """Fails every turn, or, with ``hangs``, never ends one."""

    version = 0

    def __init__(self, hangs: bool = False) -> None:
        self.hangs = hangs

    def open(self, sessions: Iterable[str]) -> None:
        """Nothing waits."""

    def release(self, session: str) -> None:
        """Nothing is held."""

    async def generate(self, request: Request) -> Completion:
        if self.hangs:
            await asyncio.sleep(60)
        raise EngineError("it broke")


async def answered(call: ToolCall) -> Reply:
    return Reply(make_record("web", CallStatus.OK, results=[]), CallStatus.OK, "", 0.0, "test")


async def graded(evidence: Evidence, call: object) -> Reward:
    return Reward({}, success=evidence.solution == evidence.task.answer)


def policy_of(tiny: Loaded, turns: list[str] | Broken, dialect: str = "tags") -> Policy:
    engine = turns if isinstance(turns, Broken) else ScriptedEngine(tiny.codec, turns)
    return Policy(engine, tiny.codec, DEFAULT_TOOLS, dialect, system_prompt=False)


async def events_of(policy: Policy, budgets: Budgets | None = None) -> list[Event]:
    budgets = budgets or Budgets(turn_tokens=200, policy_tokens=900, context=3000)
    seen: list[Event] = []
    done = await rollout(TASK, policy, answered, graded, budgets, key=1, session="s", on_event=seen.append)
    # What is streamed and what is kept are the same, but for the order of a turn's events and its pieces.
    assert sorted(str(event.type) for event in seen) == sorted(str(event.type) for event in done.events)
    return done.events


async def test_a_metric_a_turn_and_their_total(tiny: Loaded) -> None:
    events = await events_of(policy_of(tiny, [CALL, "<solution>7</solution>"]))
    first, second = (event.payload for event in events if event.type is EventType.METRIC)
    assert first is not None
    assert second is not None
    assert first["step"] == first["total"]
    assert second["step"]["input"] > first["step"]["input"] > 0
    for key in ("input", "output", "duration"):
        assert second["total"][key] == pytest.approx(first["step"][key] + second["step"][key])


async def test_an_error_is_the_last_event_of_a_fault_and_says_why(tiny: Loaded) -> None:
    ours = await events_of(policy_of(tiny, Broken()))
    assert (ours[-1].type, ours[-1].content) == (EventType.ERROR, "it broke")
    spent = await events_of(policy_of(tiny, ["word " * 99]), Budgets(turn_tokens=5))
    assert (spent[-1].type, spent[-1].content) == (EventType.ERROR, "a turn ran out of its token budget")


@pytest.mark.parametrize("dialect", ["tags", "hermes"])
async def test_an_end_comes_once_whatever_the_dialect(tiny: Loaded, dialect: str) -> None:
    events = await events_of(policy_of(tiny, ["<solution>7</solution>" if dialect == "tags" else "7"], dialect))
    assert [event.type for event in events].count(EventType.END) == 1


async def test_a_cancelled_rollout_says_so_last(tiny: Loaded) -> None:
    record = Rollout(task=TASK, sample=0)
    work = asyncio.create_task(
        rollout(TASK, policy_of(tiny, Broken(hangs=True)), answered, graded, Budgets(), key=1, session="s", into=record)
    )
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert [event.type for event in record.events] == [EventType.USER, EventType.CANCELLED]


def test_an_interrupt_stops_an_answer_and_not_the_chat() -> None:
    config = load_config("quickstart", ["model.path=quickstart", "engine.device=cpu"])
    seen: list[EventType] = []

    def on_event(event: Event) -> None:
        if event.type is EventType.USER and EventType.USER not in seen:
            os.kill(os.getpid(), signal.SIGINT)
        seen.append(event.type)

    out = io.StringIO()
    try:
        chat(config, ["what is the code of BCDF?", "what is 7 to the power 3 mod 5?"], out, on_event)
    except (ExecutorUnavailable, CallwrightError) as error:
        pytest.skip(f"no sandbox here: {error}")
    first, second = (index for index, kind in enumerate(seen) if kind is EventType.USER)
    assert {EventType.INTERRUPT, EventType.CANCELLED} <= set(seen[first:second])
    assert seen[second:].count(EventType.METRIC) >= 1
    assert seen[second:][-1] in (EventType.END, EventType.METRIC, EventType.ERROR)
    assert "interrupt:" in out.getvalue()
    assert "sampled" in out.getvalue()
