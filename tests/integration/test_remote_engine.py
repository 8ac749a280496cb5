"""A vendor's model as the policy of a rollout, in every dialect and over every wire: our own gateway is the vendor."""

from __future__ import annotations

from typing import Any

import pytest
from gateways import FAILURE, Reciter, gateway

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import Reward
from callwright.envs.rewards.evidence import Evidence
from callwright.envs.rollout import rollout
from callwright.envs.rollout_record import Rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Sampling, require_exact
from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.engines.text_codec import TextCodec
from callwright.serving.errors import UserError
from callwright.serving.models import Loaded
from callwright.serving.protocol import DEFAULT_TOOLS, ToolCall, get_dialect
from callwright.serving.queues.reply import CallStatus, Reply, make_record
from callwright.serving.wires import CapabilityError

pytestmark = pytest.mark.integration

TASK = Task("t/0", "lookup", "the code of Ä?", "7")
WIRES = ("openai", "responses", "anthropic", "gemini", "ollama")
BUDGETS = Budgets(turn_tokens=2000, policy_tokens=4000, context=20_000)


async def answered(call: ToolCall) -> Reply:
    record = make_record("web", CallStatus.OK, results=[{"title": "Ä", "content": "the code is 7"}])
    return Reply(record, CallStatus.OK, "", 0.0, "test")


async def graded(evidence: Evidence, call: object) -> Reward:
    return Reward({}, success=evidence.solution == evidence.task.answer)


async def play(engine: RemoteEngine, dialect: str, **sampling: Any) -> Rollout:
    policy = Policy(engine, engine.codec, DEFAULT_TOOLS, dialect, Sampling(**sampling))
    return await rollout(TASK, policy, answered, graded, BUDGETS, key=1, session="s")


@pytest.mark.parametrize("dialect", ["tags", "execute", "hermes"])
@pytest.mark.parametrize("fmt", WIRES)
async def test_a_rollout_of_a_vendors_model(fmt: str, dialect: str, tiny: Loaded) -> None:
    words = get_dialect(dialect)
    call = words.render_call(ToolCall("web", {"q": "Ä", "k": 1}))

    def answer(context: str) -> str:
        # What follows the call must not reach the parser: a remote model may go on where ours would have been stopped.
        after = "" if dialect == "hermes" else "<solution>never</solution>"
        return words.render_solution("7") if "the code is 7" in context else f"<think>hm</think>{call}{after}"

    # The server's dialect is another one without tools, so that all of this is plain text to it.
    server_dialect = "hermes" if dialect != "hermes" else "tags"
    vendor = Reciter(tiny.codec, answer)
    with gateway(vendor, tiny.codec, server_dialect, explain=False, key="k3y") as url:
        engine = RemoteEngine(fmt, url, "some-model", key="k3y")
        done = await play(engine, dialect, temperature=0.5)
    assert (done.outcome, done.trajectory.cause) == (Outcome.SCORED, "")
    assert (done.success, len(done.calls)) == (True, 1)
    first, second = (tiny.codec.decode(request.ids) for request in vendor.requests)
    assert first.endswith("the code of Ä?<|assistant|>")
    assert "web (q: " in first or '<web>{"type":"web"' in first
    assert second.startswith(first)
    assert second.partition(first)[2].count("<|user|>") == 1  # the result, told by the user
    assert vendor.requests[0].sampling.temperature == 0.5
    assert len(done.trajectory.ids) == len(done.trajectory.mask) == len(done.trajectory.logprobs)


async def test_a_failing_vendor_is_an_infra_fault_without_the_key(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callwright.serving.engines.remote.ATTEMPTS", 1)
    with gateway(Reciter(tiny.codec, lambda context: FAILURE), tiny.codec, key="k3y") as url:
        failed = await play(RemoteEngine("openai", url, "m", key="k3y"), "tags")
        refused = await play(RemoteEngine("openai", url, "m", key="wr0ng"), "tags")
    gone = await play(RemoteEngine("openai", url, "m", key="k3y"), "tags")
    for done, says in ((failed, "m: 500"), (refused, "m: 401"), (gone, f"m at {url}: ")):
        assert done.outcome is Outcome.INFRA_FAULT
        assert says in done.trajectory.cause
        assert "k3y" not in done.trajectory.cause
        assert "wr0ng" not in done.trajectory.cause


def test_it_is_refused_for_policy_gradient_training() -> None:
    with pytest.raises(UserError, match="policy gradient needs both"):
        require_exact(RemoteEngine)
    require_exact(Reciter)
    with pytest.raises(CapabilityError, match="no API speaks"):
        RemoteEngine("hermes", "http://127.0.0.1:1", "m")


@pytest.mark.parametrize("text", ["", "ä😀<tool_call>", "<|user|>\x00"])
def test_any_text_comes_back_and_no_text_is_a_mark(text: str) -> None:
    codec: Codec = TextCodec()
    assert codec.decode(codec.encode(text)) == text
    ids = codec.prompt([{"role": "system", "content": "s"}, {"role": "user", "content": text}])
    assert TextCodec().conversation(ids, ()) == [("system", "s"), *([("user", text)] if text else [])]
