"""Decoding under a grammar: a random model's turns break no rule, and logprobs are those of what was sampled from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from callwright.envs.budgets import Budgets
from callwright.envs.policy import Policy
from callwright.envs.rewards import ungraded
from callwright.envs.rollout import rollout
from callwright.envs.tasks.task import Task
from callwright.envs.trajectory import Outcome
from callwright.serving.engines.constraint import Grammars
from callwright.serving.engines.engine import Completion, EngineError, FinishReason, Request, Sampling
from callwright.serving.engines.remote import RemoteEngine
from callwright.serving.engines.sampler import address
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.errors import UserError
from callwright.serving.models import Loaded
from callwright.serving.protocol import DEFAULT_TOOLS, DIALECTS, Parser, ToolCall, get_dialect
from callwright.serving.protocol.grammar import Form
from callwright.serving.protocol.values import RejectionCode
from callwright.serving.queues.reply import CallStatus, Reply, make_record

pytest.importorskip("llguidance", reason="the extras train and serve have llguidance")
pytestmark = pytest.mark.integration

WAIT_S = 200.0
CONTEXT = 320
Make = Callable[[Loaded], TransformersEngine]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[TransformersEngine] = []

    def build(loaded: Loaded) -> TransformersEngine:
        made.append(TransformersEngine(loaded.model, rows=12, context=CONTEXT, grammars=Grammars(loaded.codec)))
        return made[-1]

    yield build
    for engine in made:
        engine.close()


def request(loaded: Loaded, name: str, grammar: str | None, temperature: float = 1.0, tokens: int = 120) -> Request:
    ids = loaded.codec.prompt([{"role": "user", "content": f"compute {name}"}])
    key, eos = address(name), loaded.codec.eos
    return Request(ids, tokens, Sampling(temperature), key, name, eos=eos, grammar=grammar)


async def ask(engine: TransformersEngine, *requests: Request) -> list[Completion]:
    async with asyncio.timeout(WAIT_S):
        return await asyncio.gather(*map(engine.generate, requests))


def read(loaded: Loaded, dialect: str, done: Completion) -> Parser:
    parser = Parser(dialect, DEFAULT_TOOLS)
    parser.feed(loaded.codec.decode(done.ids[:-1] if done.reason is FinishReason.EOS else done.ids))
    parser.close()
    return parser


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_random_models_turns_break_no_rule(dialect: str, random_models: dict[str, Loaded], make: Make) -> None:
    loaded = random_models[dialect]
    engine, words = make(loaded), get_dialect(dialect)
    for form in (Form(), Form(must_call=True, one_call=True)):
        grammar = words.grammar(DEFAULT_TOOLS, form)
        done = await ask(engine, *(request(loaded, f"{form}{n}", grammar) for n in range(20)))
        ended = [read(loaded, dialect, turn) for turn in done if turn.reason is not FinishReason.LENGTH]
        assert ended, [loaded.codec.decode(turn.ids) for turn in done]
        for parser in ended:
            assert (parser.rejections, parser.violations, parser.incomplete) == ([], [], None)
            assert parser.call_blocks or parser.solution is not None
            assert not form.must_call or len(parser.calls) == 1
    # The same model, free, does nothing of the kind.
    free = await ask(engine, *(request(loaded, f"free{n}", None) for n in range(4)))
    assert any(read(loaded, dialect, turn).refusals or not read(loaded, dialect, turn).calls for turn in free)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_logprobs_are_those_of_the_constrained_distribution(tiny: Loaded, make: Make, temperature: float) -> None:
    grammar = get_dialect("tags").grammar(DEFAULT_TOOLS)
    asked = request(tiny, "logprobs", grammar, temperature, tokens=40)
    (done,) = await ask(make(tiny), asked)
    matcher = Grammars(tiny.codec).matcher(grammar)
    with torch.no_grad():
        logits = tiny.model(input_ids=torch.tensor([[*asked.ids, *done.ids]])).logits[0, len(asked.ids) - 1 : -1]
    narrowed = 0
    for token, found, row in zip(done.ids, done.logprobs, logits, strict=True):
        allowed = torch.from_numpy(np.frombuffer(matcher.compute_logit_bias(), np.uint8) > 0)[: len(row)]
        assert allowed[token]
        narrowed += not allowed.all()
        want = (row.masked_fill(~allowed, float("-inf")) / (temperature or 1.0)).log_softmax(-1)
        assert found == pytest.approx(float(want[token]), abs=1e-4)
        if temperature == 0:
            assert token == int(want.argmax())
        matcher.consume_token(token)
    assert narrowed == len(done.ids)


async def test_a_row_without_a_grammar_does_not_notice(tiny: Loaded, make: Make) -> None:
    grammar = get_dialect("tags").grammar(DEFAULT_TOOLS)
    free = [request(tiny, f"free{n}", None, tokens=30) for n in range(4)]
    held = [request(tiny, f"held{n}", grammar, tokens=30) for n in range(4)]
    alone = [(await ask(make(tiny), one))[0] for one in free]
    mixed = await ask(make(tiny), *(one for pair in zip(free, held, strict=True) for one in pair))
    assert [done.ids for done in mixed[::2]] == [done.ids for done in alone]
    assert [done.ids for done in mixed[1::2]] != [done.ids for done in await ask(make(tiny), *free)]


async def test_a_grammar_that_is_none_fails_its_own_turn(tiny: Loaded, make: Make) -> None:
    engine = make(tiny)
    good = request(tiny, "good", get_dialect("tags").grammar(DEFAULT_TOOLS), tokens=20)
    with pytest.raises(EngineError, match="grammar"):
        await engine.generate(request(tiny, "bad", "root ::= nothing-of-the-kind"))
    assert (await ask(engine, good))[0].ids
    bare = TransformersEngine(tiny.model, rows=1, context=64)
    with pytest.raises(EngineError, match="made without"):
        await bare.generate(good)
    bare.close()


async def test_rollouts_of_a_constrained_policy_have_no_refused_call(tiny: Loaded, make: Make) -> None:
    engine = make(tiny)
    policy = Policy(engine, tiny.codec, DEFAULT_TOOLS, system_prompt=False, constrained=True)

    async def call_tool(call: ToolCall) -> Reply:
        return Reply(make_record(call.name, CallStatus.OK, results=[]), CallStatus.OK, "", 0.0, "test")

    task = Task(key="t", family="t", question="compute 12 plus 30.", answer="")
    budgets = Budgets(context=CONTEXT, policy_tokens=300, turn_tokens=200, calls=4)
    asked = [
        rollout(
            task, policy, call_tool, ungraded, budgets, key=n, session=f"s{n}", prefill="<solution>" if n % 2 else ""
        )
        for n in range(16)
    ]
    async with asyncio.timeout(WAIT_S):
        done = await asyncio.gather(*asked)
    # What a budget cut off is no whole turn; nothing else is refused.
    assert {refused.code for row in done for refused in row.rejections} <= {RejectionCode.TRUNCATED}
    assert not any(row.violations for row in done)
    assert any(row.calls for row in done[::2])
    opened = [row for row in done[1::2] if row.outcome is Outcome.SCORED]
    assert opened
    assert all(row.solution is not None and not row.calls for row in opened)


def test_an_engine_that_cannot_is_refused() -> None:
    engine = RemoteEngine("openai", "http://127.0.0.1:9", "m")
    with pytest.raises(UserError, match=r"RemoteEngine cannot hold a model to a grammar; say decoding=free"):
        Policy(engine, engine.codec, DEFAULT_TOOLS, constrained=True)
    engine.close()
